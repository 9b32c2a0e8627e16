// Kernels that nvcc compiled into torch: each registers its name when its library is loaded, and is launched by the address of
// its host function. A launch is checked as the driver checks it, counted, and does nothing.
#include <cxxabi.h>

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "runtime.h"

namespace {

struct Configuration {
  dim3 grid, block;
  size_t shared_bytes;
  cudaStream_t stream;
};
thread_local std::vector<Configuration> configurations;

// Filled while libraries are loaded, before this one's own variables need be there.
std::unordered_map<const void *, std::string> &names() {
  static auto *all = new std::unordered_map<const void *, std::string>;
  return *all;
}

const std::string &name_of(const void *kernel) {
  static const std::string unknown = "a kernel that was never registered";
  Locked lock;
  const auto found = names().find(kernel);
  return found == names().end() ? unknown : found->second;
}

cudaError_t launch(const void *kernel, dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream) {
  constexpr unsigned MOST_THREADS = 1024, MOST_BLOCKS_OF_Y_AND_Z = 65535;
  const std::string &name = name_of(kernel);
  const unsigned long long threads = 1ull * block.x * block.y * block.z, blocks = 1ull * grid.x * grid.y * grid.z;
  if (!blocks || grid.y > MOST_BLOCKS_OF_Y_AND_Z || grid.z > MOST_BLOCKS_OF_Y_AND_Z || !threads || threads > MOST_THREADS ||
      shared_bytes > SHARED_BYTES_OF_BLOCK)
    return failed(cudaErrorInvalidConfiguration, name);
  return static_cast<cudaError_t>(emulated_kernel(&name, stream));
}

std::string readable(const char *mangled) {
  int status;
  char *found = abi::__cxa_demangle(mangled, nullptr, nullptr, &status);
  const std::string name = found ? found : mangled;
  free(found);
  return name;
}

} // namespace

extern "C" {

void **__cudaRegisterFatBinary(void *) {
  static void *handle = nullptr;
  return &handle;
}
void __cudaRegisterFatBinaryEnd(void **) {}
void __cudaUnregisterFatBinary(void **) {}
char __cudaInitModule(void **) { return 1; }
void __cudaRegisterVar(void **, char *, char *, const char *, int, size_t, int, int) {}

void __cudaRegisterFunction(
    void **, const char *host, char *, const char *name, int, uint3 *, uint3 *, dim3 *, dim3 *, int *) {
  Locked lock;
  names()[host] = name;
}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream) {
  configurations.push_back({grid, block, shared_bytes, stream});
  return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared_bytes, void *stream) {
  const Configuration found = configurations.back();
  configurations.pop_back();
  *grid = found.grid;
  *block = found.block;
  *shared_bytes = found.shared_bytes;
  *static_cast<cudaStream_t *>(stream) = found.stream;
  return cudaSuccess;
}

cudaError_t __cudaGetKernel(cudaKernel_t *found, const void *kernel) {
  *found = reinterpret_cast<cudaKernel_t>(const_cast<void *>(kernel));
  return cudaSuccess;
}

cudaError_t __cudaLaunchKernel(
    cudaKernel_t kernel, dim3 grid, dim3 block, void **, size_t shared_bytes, cudaStream_t stream) {
  return launch(kernel, grid, block, shared_bytes, stream);
}

cudaError_t cudaLaunchKernel(const void *kernel, dim3 grid, dim3 block, void **, size_t shared_bytes, cudaStream_t stream) {
  return launch(kernel, grid, block, shared_bytes, stream);
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *asked, const void *kernel, void **) {
  return launch(kernel, asked->gridDim, asked->blockDim, asked->dynamicSmemBytes, asked->stream);
}

// A name as a programmer reads it. It is valid until the next call.
const char *emulated_readable(const char *mangled) {
  static thread_local std::string found;
  found = readable(mangled);
  return found.c_str();
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *found, const void *) {
  *found = {};
  found->maxThreadsPerBlock = 1024;
  found->numRegs = 64;
  found->ptxVersion = found->binaryVersion = compute_capability();
  found->maxDynamicSharedSizeBytes = SHARED_BYTES_OF_BLOCK - 1024;
  return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void *kernel, cudaFuncAttribute, int value) {
  return value > SHARED_BYTES_OF_BLOCK ? failed(cudaErrorInvalidValue, name_of(kernel)) : cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int *blocks, const void *, int threads, size_t shared_bytes, unsigned) {
  const int by_threads = 2048 / std::max(threads, 1);
  const int by_memory = static_cast<int>(SHARED_BYTES_OF_MULTIPROCESSOR / (shared_bytes + 1024));
  *blocks = std::max(1, std::min({by_threads, by_memory, 32}));
  return cudaSuccess;
}

cudaError_t cudaGetSymbolAddress(void **address, const void *symbol) {
  *address = const_cast<void *>(symbol);
  return cudaSuccess;
}
cudaError_t cudaMemcpyToSymbol(const void *, const void *, size_t, size_t, cudaMemcpyKind) { return cudaSuccess; }
}
