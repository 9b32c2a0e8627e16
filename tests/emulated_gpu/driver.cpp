// The part of CUDA's driver that torch, Triton and a reader of graphs call. A module's kernels are known by their names, and
// launched through the emulated runtime, so that its captures see them. Without that runtime in the process there is no
// device.
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <cstring>

#include "device.h"

namespace {

template <typename Function> Function *runtime(const char *name) {
  return reinterpret_cast<Function *>(dlsym(RTLD_DEFAULT, name));
}
#define RUNTIME(name) runtime<decltype(name)>(#name)

// A kernel of a module: its name. It is never freed, for graphs that were captured with it name it too.
CUfunction function_of(const std::string *name) { return reinterpret_cast<CUfunction>(const_cast<std::string *>(name)); }

CUcontext the_context() { return reinterpret_cast<CUcontext>(0x1); }

} // namespace

extern "C" {

CUresult cuInit(unsigned) { return RUNTIME(emulated_kernel) ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE; }
CUresult cuDriverGetVersion(int *version) {
  *version = CUDA_VERSION_SAID;
  return CUDA_SUCCESS;
}
CUresult cuGetErrorString(CUresult, const char **text) {
  *text = "an error of the emulated driver";
  return CUDA_SUCCESS;
}
CUresult cuGetErrorName(CUresult, const char **text) {
  *text = "CUDA_ERROR_EMULATED";
  return CUDA_SUCCESS;
}

// ---- the device and its context

CUresult cuDeviceGet(CUdevice *device, int number) {
  *device = number;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetCount(int *count) {
  *count = std::stoi(setting("EMULATED_GPU_COUNT", "1"));
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute asked, CUdevice) {
  switch (asked) {
  case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: *value = SHARED_BYTES_OF_BLOCK; break;
  case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR: *value = SHARED_BYTES_OF_MULTIPROCESSOR; break;
  case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = MULTIPROCESSORS; break;
  case CU_DEVICE_ATTRIBUTE_WARP_SIZE: *value = 32; break;
  case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK: *value = 65536; break;
  case CU_DEVICE_ATTRIBUTE_CLOCK_RATE: *value = CLOCK_KHZ; break;
  case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE: *value = MEMORY_CLOCK_KHZ; break;
  case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH: *value = MEMORY_BUS_BITS; break;
  case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = compute_capability() / 10; break;
  case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = compute_capability() % 10; break;
  default: *value = 1;
  }
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxGetState(CUdevice, unsigned *flags, int *active) {
  *flags = 0;
  *active = 1;
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice) {
  *context = the_context();
  return CUDA_SUCCESS;
}
CUresult cuCtxGetCurrent(CUcontext *context) {
  *context = the_context();
  return CUDA_SUCCESS;
}
CUresult cuCtxSetCurrent(CUcontext) { return CUDA_SUCCESS; }
CUresult cuCtxPushCurrent_v2(CUcontext) { return CUDA_SUCCESS; }
CUresult cuCtxPopCurrent_v2(CUcontext *) { return CUDA_SUCCESS; }
CUresult cuCtxGetDevice(CUdevice *device) {
  *device = 0;
  return CUDA_SUCCESS;
}
CUresult cuCtxGetLimit(size_t *value, CUlimit) {
  *value = 1 << 20;
  return CUDA_SUCCESS;
}
CUresult cuCtxSetLimit(CUlimit, size_t) { return CUDA_SUCCESS; }

CUresult cuPointerGetAttribute(void *value, CUpointer_attribute asked, CUdeviceptr address) {
  auto *kind = RUNTIME(emulated_kind_of_memory);
  if (asked != CU_POINTER_ATTRIBUTE_DEVICE_POINTER) {
    memset(value, 0, sizeof(int));
    return CUDA_SUCCESS;
  }
  if (!kind || !kind(reinterpret_cast<void *>(address))) return CUDA_ERROR_INVALID_VALUE;
  *static_cast<CUdeviceptr *>(value) = address;
  return CUDA_SUCCESS;
}

// ---- modules and their kernels

CUresult cuModuleLoadData(CUmodule *module, const void *) {
  *module = reinterpret_cast<CUmodule>(new char);
  return CUDA_SUCCESS;
}
CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned, CUjit_option *, void **) {
  return cuModuleLoadData(module, image);
}
CUresult cuModuleLoad(CUmodule *module, const char *) { return cuModuleLoadData(module, nullptr); }
CUresult cuModuleUnload(CUmodule module) {
  delete reinterpret_cast<char *>(module);
  return CUDA_SUCCESS;
}
CUresult cuModuleGetFunction(CUfunction *found, CUmodule, const char *name) {
  if (auto *loaded = RUNTIME(emulated_loaded)) loaded(name);
  *found = function_of(new std::string(name));
  return CUDA_SUCCESS;
}

CUresult cuFuncGetName(const char **name, CUfunction function) {
  *name = reinterpret_cast<const std::string *>(function)->c_str();
  return CUDA_SUCCESS;
}
CUresult cuFuncGetAttribute(int *value, CUfunction_attribute asked, CUfunction) {
  *value = asked == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024 : asked == CU_FUNC_ATTRIBUTE_NUM_REGS ? 64 : 0;
  return CUDA_SUCCESS;
}
CUresult cuFuncSetAttribute(CUfunction, CUfunction_attribute, int) { return CUDA_SUCCESS; }
CUresult cuFuncSetCacheConfig(CUfunction, CUfunc_cache) { return CUDA_SUCCESS; }

CUresult cuLaunchKernel(
    CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned x, unsigned y, unsigned z,
    unsigned shared_bytes, CUstream stream, void **, void **) {
  constexpr unsigned MOST_THREADS = 1024;
  const unsigned long long threads = 1ull * x * y * z;
  const bool allowed = grid_x && grid_y && grid_z && threads > 0 && threads <= MOST_THREADS;
  if (!allowed || shared_bytes > SHARED_BYTES_OF_BLOCK) return CUDA_ERROR_INVALID_VALUE;
  return static_cast<CUresult>(RUNTIME(emulated_kernel)(reinterpret_cast<const std::string *>(function), stream));
}
CUresult cuLaunchKernelEx(const CUlaunchConfig *asked, CUfunction function, void **parameters, void **extra) {
  return cuLaunchKernel(
      function, asked->gridDimX, asked->gridDimY, asked->gridDimZ, asked->blockDimX, asked->blockDimY, asked->blockDimZ,
      asked->sharedMemBytes, asked->hStream, parameters, extra);
}
CUresult cuLaunchCooperativeKernel(
    CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned x, unsigned y, unsigned z,
    unsigned shared_bytes, CUstream stream, void **parameters) {
  return cuLaunchKernel(function, grid_x, grid_y, grid_z, x, y, z, shared_bytes, stream, parameters, nullptr);
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction, int, size_t) {
  *blocks = 2;
  return CUDA_SUCCESS;
}
CUresult cuOccupancyMaxActiveClusters(int *clusters, CUfunction, const CUlaunchConfig *) {
  *clusters = 16;
  return CUDA_SUCCESS;
}
CUresult cuTensorMapEncodeTiled(
    CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *, const cuuint64_t *, const cuuint32_t *,
    const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
  return CUDA_SUCCESS;
}
CUresult cuLinkCreate_v2(unsigned, CUjit_option *, void **, CUlinkState *) { return CUDA_ERROR_NOT_SUPPORTED; }
CUresult cuLinkAddData_v2(
    CUlinkState, CUjitInputType, void *, size_t, const char *, unsigned, CUjit_option *, void **) {
  return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult cuLinkComplete(CUlinkState, void **, size_t *) { return CUDA_ERROR_NOT_SUPPORTED; }

// ---- reading a graph

CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count) {
  return static_cast<CUresult>(RUNTIME(cudaGraphGetNodes)(graph, nodes, count));
}

CUresult cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType *type) {
  return static_cast<CUresult>(RUNTIME(cudaGraphNodeGetType)(node, reinterpret_cast<cudaGraphNodeType *>(type)));
}

CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *found) {
  const std::string *name = RUNTIME(emulated_name_of_node)(node);
  if (!name) return CUDA_ERROR_INVALID_VALUE;
  *found = {};
  found->func = function_of(name);
  return CUDA_SUCCESS;
}
}
