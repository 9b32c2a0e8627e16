// What the CUDA runtime says of the device: an H100, unless variables of the process say otherwise. Peers, memory pools and
// handles for other processes are not there.
#include <dlfcn.h>

#include <cstdio>
#include <cstring>

#include "runtime.h"

#undef cudaGetDeviceProperties

namespace {
thread_local int current_device = 0;

int not_supported() { return cudaErrorNotSupported; }
} // namespace

extern "C" {

cudaError_t cudaGetDeviceCount(int *count) {
  *count = std::stoi(setting("EMULATED_GPU_COUNT", "1"));
  return *count ? cudaSuccess : cudaErrorNoDevice;
}

cudaError_t cudaGetDevice(int *device) {
  *device = current_device;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  int count;
  cudaGetDeviceCount(&count);
  if (device < 0 || device >= count) return failed(cudaErrorInvalidDevice, "cudaSetDevice");
  current_device = device;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *found, int device) {
  *found = {};
  snprintf(found->name, sizeof found->name, "%s", device_name().c_str());
  for (int i = 0; i < 16; ++i) found->uuid.bytes[i] = static_cast<char>(0x10 + i + device);
  size_t free;
  cudaMemGetInfo(&free, &found->totalGlobalMem);
  found->major = compute_capability() / 10;
  found->minor = compute_capability() % 10;
  found->multiProcessorCount = MULTIPROCESSORS;
  found->warpSize = 32;
  found->maxThreadsPerBlock = found->maxThreadsDim[0] = found->maxThreadsDim[1] = 1024;
  found->maxThreadsDim[2] = 64;
  found->maxThreadsPerMultiProcessor = 2048;
  found->maxBlocksPerMultiProcessor = 32;
  found->maxGridSize[0] = 2147483647;
  found->maxGridSize[1] = found->maxGridSize[2] = 65535;
  found->sharedMemPerBlock = 49152;
  found->sharedMemPerBlockOptin = SHARED_BYTES_OF_BLOCK;
  found->sharedMemPerMultiprocessor = SHARED_BYTES_OF_MULTIPROCESSOR;
  found->reservedSharedMemPerBlock = 1024;
  found->regsPerBlock = found->regsPerMultiprocessor = 65536;
  found->totalConstMem = 65536;
  found->l2CacheSize = 52428800;
  found->memoryBusWidth = MEMORY_BUS_BITS;
  found->textureAlignment = 512;
  found->pciBusID = 1;
  found->asyncEngineCount = 3;
  found->ECCEnabled = found->canMapHostMemory = found->concurrentKernels = found->unifiedAddressing = 1;
  found->streamPrioritiesSupported = found->cooperativeLaunch = found->managedMemory = found->clusterLaunch = 1;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr asked, int) {
  switch (asked) {
  case cudaDevAttrMaxThreadsPerBlock: *value = 1024; break;
  case cudaDevAttrMaxSharedMemoryPerBlock: *value = 49152; break;
  case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = SHARED_BYTES_OF_BLOCK; break;
  case cudaDevAttrWarpSize: *value = 32; break;
  case cudaDevAttrMultiProcessorCount: *value = MULTIPROCESSORS; break;
  case cudaDevAttrComputeCapabilityMajor: *value = compute_capability() / 10; break;
  case cudaDevAttrComputeCapabilityMinor: *value = compute_capability() % 10; break;
  case cudaDevAttrClockRate: *value = CLOCK_KHZ; break;
  case cudaDevAttrMemoryClockRate: *value = MEMORY_CLOCK_KHZ; break;
  case cudaDevAttrGlobalMemoryBusWidth: *value = MEMORY_BUS_BITS; break;
  case cudaDevAttrL2CacheSize: *value = 52428800; break;
  case cudaDevAttrMaxGridDimX: *value = 2147483647; break;
  default: *value = 1; // whether it can do something
  }
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *text, int bytes, int) {
  snprintf(text, bytes, "0000:01:00.0");
  return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version) {
  *version = CUDA_VERSION_SAID;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int *version) { return cudaDriverGetVersion(version); }
cudaError_t cudaProfilerStart() { return cudaSuccess; }
cudaError_t cudaProfilerStop() { return cudaSuccess; }

// torch looks its driver calls up by name, and wants an address for each, also for those that nothing here calls.
cudaError_t cudaGetDriverEntryPointByVersion(
    const char *name, void **found, unsigned, unsigned long long, cudaDriverEntryPointQueryResult *result) {
  void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  *found = driver ? dlsym(driver, name) : nullptr;
  if (!*found) *found = reinterpret_cast<void *>(not_supported);
  if (result) *result = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int, int) {
  *can = 0;
  return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) { return cudaErrorNotSupported; }
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *, int) { return cudaErrorNotSupported; }
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t, cudaMemPoolAttr, void *) { return cudaErrorNotSupported; }
cudaError_t cudaMemPoolSetAccess(cudaMemPool_t, const cudaMemAccessDesc *, size_t) { return cudaErrorNotSupported; }
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void *) { return cudaErrorNotSupported; }
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, size_t) { return cudaErrorNotSupported; }
cudaError_t cudaIpcCloseMemHandle(void *) { return cudaErrorNotSupported; }
cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t *, cudaEvent_t) { return cudaErrorNotSupported; }
cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *, void *) { return cudaErrorNotSupported; }
cudaError_t cudaIpcOpenEventHandle(cudaEvent_t *, cudaIpcEventHandle_t) { return cudaErrorNotSupported; }
cudaError_t cudaIpcOpenMemHandle(void **, cudaIpcMemHandle_t, unsigned) { return cudaErrorNotSupported; }
}
