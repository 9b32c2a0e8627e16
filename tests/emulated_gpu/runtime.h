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
