// What the libraries of the emulated GPU share.
//
// libemulated_cuda.so (runtime.cpp, memory.cpp, kernels.cpp, properties.cpp, cublas.cpp) is loaded before torch's own CUDA
// runtime and cuBLAS, and takes their place. libcuda.so.1 (driver.cpp) and libnvidia-ml.so.1 (nvml.cpp) are found under these
// names, as a driver's are.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <string>

// A variable of the process that describes the GPU, or what an H100 says.
inline std::string setting(const char *name, const char *usual) {
  const char *given = std::getenv(name);
  return given && *given ? given : usual;
}

inline int compute_capability() { return std::stoi(setting("EMULATED_GPU_CAPABILITY", "90")); }

inline std::string device_name() { return setting("EMULATED_GPU_NAME", "NVIDIA H100 80GB HBM3"); }

constexpr int MULTIPROCESSORS = 132;
constexpr int SHARED_BYTES_OF_BLOCK = 232448;
constexpr int SHARED_BYTES_OF_MULTIPROCESSOR = 233472;
constexpr int CLOCK_KHZ = 1980000;
constexpr int MEMORY_CLOCK_KHZ = 2619000;
constexpr int MEMORY_BUS_BITS = 5120;
constexpr int CUDA_VERSION_SAID = 13000;
// Bytes 0x10 to 0x1f, as the runtime says them and as NVML writes them.
constexpr char UUID[] = "GPU-10111213-1415-1617-1819-1a1b1c1d1e1f";

extern "C" {
// Submits a kernel to a stream: counted, and a node of the graph that the stream captures. Returns a cudaError_t.
// `called` names it, and is never freed.
int emulated_kernel(const std::string *called, void *stream);
// The name that a kernel node was submitted with; null for nodes of other types.
const std::string *emulated_name_of_node(void *node);
// 1 for device memory, 2 for page-locked memory, 0 for any other.
int emulated_kind_of_memory(const void *address);
// A kernel that a driver's module has brought; tests read the list.
void emulated_loaded(const char *name);
// Something that a real GPU refuses, or does otherwise than its caller wants; tests read the list.
void emulated_fault(const char *what);
}
