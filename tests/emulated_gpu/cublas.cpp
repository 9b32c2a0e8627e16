// cuBLAS and cuBLASLt: each product is one kernel, which may write all over its workspace. Python asks which workspaces a
// torch operation has used and scribbles over them, so that whoever else has this memory finds out.
//
// Written without cuBLAS's headers, which want those of CUDA's C++ library too: handles and descriptions are addresses,
// settings are numbers, and what a product is given beyond its handle is not looked at.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "runtime.h"

namespace {

using Status = int;
constexpr Status SUCCESS = 0, EXECUTION_FAILED = 13;

struct Space {
  void *address;
  size_t bytes;
};

struct Handle {
  cudaStream_t stream = nullptr;
  Space workspace = {nullptr, 0}; // none: cuBLAS's own
  int math = 0, pointers = 0;
};

struct Result { // cublasLtMatmulHeuristicResult_t
  uint64_t algorithm[8];
  size_t workspace_bytes;
  Status state;
  float waves;
  int reserved[4];
};

thread_local std::vector<Space> written;

Status submit(const std::string *name, cudaStream_t stream, Space workspace) {
  if (workspace.address && workspace.bytes) written.push_back(workspace);
  return emulated_kernel(name, stream) ? EXECUTION_FAILED : SUCCESS;
}

Status create(void **made) {
  *made = new char;
  return SUCCESS;
}

Status destroy(void *one) {
  delete static_cast<char *>(one);
  return SUCCESS;
}

} // namespace

extern "C" {

// Workspace `number` of those that products of this thread have used; 0 behind the last, and all are forgotten.
int emulated_workspace(size_t number, void **address, size_t *bytes) {
  if (number >= written.size()) {
    written.clear();
    return 0;
  }
  *address = written[number].address;
  *bytes = written[number].bytes;
  return 1;
}

Status cublasCreate_v2(Handle **made) {
  *made = new Handle;
  return SUCCESS;
}
Status cublasDestroy_v2(Handle *handle) {
  delete handle;
  return SUCCESS;
}
// Gives the handle cuBLAS's own workspace back, as the real one does.
Status cublasSetStream_v2(Handle *handle, cudaStream_t stream) {
  handle->stream = stream;
  handle->workspace = {nullptr, 0};
  return SUCCESS;
}
Status cublasSetWorkspace_v2(Handle *handle, void *address, size_t bytes) {
  handle->workspace = {address, bytes};
  return SUCCESS;
}
Status cublasSetMathMode(Handle *handle, int math) {
  handle->math = math;
  return SUCCESS;
}
Status cublasGetMathMode(Handle *handle, int *math) {
  *math = handle->math;
  return SUCCESS;
}
Status cublasSetPointerMode_v2(Handle *handle, int pointers) {
  handle->pointers = pointers;
  return SUCCESS;
}
Status cublasGetPointerMode_v2(Handle *handle, int *pointers) {
  *pointers = handle->pointers;
  return SUCCESS;
}

// The products that torch calls.
#define PRODUCT(name) \
  Status name(Handle *handle, ...) { \
    static const std::string called = #name; \
    return submit(&called, handle->stream, handle->workspace); \
  }
PRODUCT(cublasGemmEx)
PRODUCT(cublasGemmStridedBatchedEx)
PRODUCT(cublasSgemm_v2)
PRODUCT(cublasDgemm_v2)
PRODUCT(cublasSgemmEx)
PRODUCT(cublasSgemmStridedBatched)
PRODUCT(cublasDgemmStridedBatched)
PRODUCT(cublasSgemv_v2)
PRODUCT(cublasDgemv_v2)
PRODUCT(cublasSdot_v2)
PRODUCT(cublasDdot_v2)
PRODUCT(cublasDotEx)
#undef PRODUCT

size_t cublasLtGetVersion() { return 130100; }

Status cublasLtMatmul(
    void *, void *, const void *, const void *, void *, const void *, void *, const void *, const void *, void *, void *,
    void *, const void *, void *workspace, size_t bytes, cudaStream_t stream) {
  static const std::string called = "cublasLtMatmul";
  return submit(&called, stream, {workspace, bytes});
}
Status cublasLtMatmulAlgoGetHeuristic(
    void *, void *, void *, void *, void *, void *, void *, int, Result *results, int *found) {
  *results = {};
  *found = 1;
  return SUCCESS;
}
Status cublasLtMatmulDescCreate(void **made, int, int) { return create(made); }
Status cublasLtMatmulDescDestroy(void *one) { return destroy(one); }
Status cublasLtMatmulDescSetAttribute(void *, int, const void *, size_t) { return SUCCESS; }
Status cublasLtMatmulPreferenceCreate(void **made) { return create(made); }
Status cublasLtMatmulPreferenceDestroy(void *one) { return destroy(one); }
Status cublasLtMatmulPreferenceSetAttribute(void *, int, const void *, size_t) { return SUCCESS; }
Status cublasLtMatrixLayoutCreate(void **made, int, uint64_t, uint64_t, int64_t) { return create(made); }
Status cublasLtMatrixLayoutDestroy(void *one) { return destroy(one); }
Status cublasLtMatrixLayoutSetAttribute(void *, int, const void *, size_t) { return SUCCESS; }
}
