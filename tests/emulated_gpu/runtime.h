// What the files of libemulated_cuda.so share.
#pragma once

#include <cuda_runtime_api.h>

#include <mutex>

#include "device.h"

// Everything that the emulated device holds is read and changed under one lock.
std::recursive_mutex &runtime_mutex();

struct Locked {
  std::lock_guard<std::recursive_mutex> guard{runtime_mutex()};
};

// Notes a fault; returns the error, which is the thread's last one from now on.
cudaError_t failed(cudaError_t error, const std::string &call);

// A call that may wait or allocate is refused where the thread's mode or a capture's mode says so. This, and what follows, is
// called under the lock.
cudaError_t refuse_within_captures(const char *call);

// A call that waits for what is `captured` would wait for ever.
cudaError_t refuse_wait(const char *call, bool captured, cudaError_t error);

// Counts an operation, a kernel by its name. `captured`: whether it has become a node, so that it must not be done now.
cudaError_t submit(cudaStream_t stream, cudaGraphNodeType type, const std::string *kernel, const char *call, bool *captured);

// For the thread's next cudaGetLastError, without a fault: torch frees its cache and asks again.
cudaError_t out_of_memory();
