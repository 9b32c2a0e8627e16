// NVIDIA's management library as an H100 answers it, GPM's counters included. Its structures are written down here, for the
// CUDA packages of PyPI have no nvml.h; they are those that the module pynvml hands over.
#include <time.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstring>

#include "device.h"

namespace {

using Answer = int;
constexpr Answer SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7,
                 ARGUMENT_VERSION_MISMATCH = 25;

using Device = void *;

struct FieldValue {
  unsigned field, scope;
  long long timestamp, latency_us;
  unsigned type;
  Answer answer;
  unsigned long long value;
};

struct Process {
  unsigned pid;
  unsigned long long bytes;
  unsigned gpu_instance, compute_instance;
};

struct GpmSample {
  double at_s; // when its counters were last refreshed
};

struct GpmMetric {
  unsigned metric;
  Answer answer;
  double value;
  const char *short_name, *long_name, *unit;
};

struct GpmMetrics {
  unsigned version, count;
  GpmSample *first, *second;
  GpmMetric metrics[]; // as many as the caller has room for
};

struct GpmSupport {
  unsigned version, supported;
};

struct PciInfo {
  char legacy_bus[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char bus_id[32];
};

constexpr double REFRESHED_EVERY_S = 0.1;
constexpr double POWER_W = 450;
constexpr int MEMORY_CLOCK = 2;
constexpr unsigned POWER_CAP_FIELD = 74, SYNC_BOOST_FIELD = 76, UNSIGNED_LONG_LONG = 3;

double now_s() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec + 1e-9 * now.tv_nsec;
}

double last_refresh_s() { return std::floor(now_s() / REFRESHED_EVERY_S) * REFRESHED_EVERY_S; }

Answer say(char *text, unsigned bytes, const std::string &said) {
  if (said.size() >= bytes) return INSUFFICIENT_SIZE;
  memcpy(text, said.c_str(), said.size() + 1);
  return SUCCESS;
}

Answer say(unsigned *value, unsigned said) {
  *value = said;
  return SUCCESS;
}

bool in_slices() { return setting("EMULATED_GPU_MIG", "0") == "1"; }

} // namespace

extern "C" {

Answer nvmlInitWithFlags(unsigned) { return SUCCESS; }
Answer nvmlInit_v2() { return SUCCESS; }
Answer nvmlShutdown() { return SUCCESS; }

const char *nvmlErrorString(Answer answer) {
  switch (answer) {
  case SUCCESS: return "Success";
  case INVALID_ARGUMENT: return "Invalid Argument";
  case NOT_SUPPORTED: return "Not Supported";
  case NO_PERMISSION: return "Insufficient Permissions";
  case NOT_FOUND: return "Not Found";
  case INSUFFICIENT_SIZE: return "Insufficient Size";
  default: return "Unknown Error";
  }
}

Answer nvmlSystemGetDriverVersion(char *text, unsigned bytes) { return say(text, bytes, "580.159.04"); }
Answer nvmlSystemGetNVMLVersion(char *text, unsigned bytes) { return say(text, bytes, "13.580.159.04"); }
Answer nvmlSystemGetCudaDriverVersion_v2(int *version) {
  *version = CUDA_VERSION_SAID;
  return SUCCESS;
}
Answer nvmlSystemGetConfComputeState(unsigned *state) {
  state[0] = state[1] = state[2] = 0;
  return SUCCESS;
}

// ---- what the device is

Answer nvmlDeviceGetCount_v2(unsigned *count) { return say(count, std::stoi(setting("EMULATED_GPU_COUNT", "1"))); }
Answer nvmlDeviceGetHandleByIndex_v2(unsigned, Device *device) {
  *device = reinterpret_cast<Device>(1);
  return SUCCESS;
}
Answer nvmlDeviceGetHandleByUUID(const char *uuid, Device *device) {
  return strcmp(uuid, UUID) ? NOT_FOUND : nvmlDeviceGetHandleByIndex_v2(0, device);
}
Answer nvmlDeviceGetName(Device, char *text, unsigned bytes) { return say(text, bytes, device_name()); }
Answer nvmlDeviceGetUUID(Device, char *text, unsigned bytes) { return say(text, bytes, UUID); }
Answer nvmlDeviceGetVbiosVersion(Device, char *text, unsigned bytes) { return say(text, bytes, "96.00.74.00.01"); }
Answer nvmlDeviceGetGspFirmwareVersion(Device, char *text) { return say(text, 64, "580.159.04"); }
Answer nvmlDeviceGetPciInfo_v3(Device, PciInfo *found) {
  *found = {};
  strcpy(found->legacy_bus, "0000:01:00.0");
  strcpy(found->bus_id, "00000000:01:00.0");
  found->bus = 1;
  return SUCCESS;
}
Answer nvmlDeviceGetArchitecture(Device, unsigned *value) { return say(value, 9); }
Answer nvmlDeviceGetCudaComputeCapability(Device, int *major, int *minor) {
  *major = compute_capability() / 10;
  *minor = compute_capability() % 10;
  return SUCCESS;
}
Answer nvmlDeviceGetMemoryBusWidth(Device, unsigned *value) { return say(value, MEMORY_BUS_BITS); }

// ---- how it is set

Answer nvmlDeviceGetEccMode(Device, unsigned *now, unsigned *later) { return say(now, 1) + say(later, 1); }
Answer nvmlDeviceGetMigMode(Device, unsigned *now, unsigned *later) { return say(now, in_slices()) + say(later, in_slices()); }
Answer nvmlDeviceGetPersistenceMode(Device, unsigned *value) { return say(value, 1); }
Answer nvmlDeviceGetComputeMode(Device, unsigned *value) { return say(value, 0); }
Answer nvmlDeviceGetVirtualizationMode(Device, unsigned *value) { return say(value, 1); }
Answer nvmlDeviceGetNvLinkVersion(Device, unsigned, unsigned *) { return NOT_SUPPORTED; }
Answer nvmlDeviceGetCurrPcieLinkGeneration(Device, unsigned *value) { return say(value, 5); }
Answer nvmlDeviceGetMaxPcieLinkGeneration(Device, unsigned *value) { return say(value, 5); }
Answer nvmlDeviceGetCurrPcieLinkWidth(Device, unsigned *value) { return say(value, 16); }
Answer nvmlDeviceGetMaxPcieLinkWidth(Device, unsigned *value) { return say(value, 16); }
Answer nvmlDeviceGetEnforcedPowerLimit(Device, unsigned *mw) { return say(mw, 700000); }
Answer nvmlDeviceGetPowerManagementDefaultLimit(Device, unsigned *mw) { return say(mw, 700000); }
Answer nvmlDeviceGetPowerManagementLimitConstraints(Device, unsigned *least, unsigned *most) {
  return say(least, 200000) + say(most, 700000);
}

// ---- what it does now

Answer nvmlDeviceGetMaxClockInfo(Device, unsigned clock, unsigned *mhz) {
  return say(mhz, (clock == MEMORY_CLOCK ? MEMORY_CLOCK_KHZ : CLOCK_KHZ) / 1000);
}
Answer nvmlDeviceGetClockInfo(Device, unsigned clock, unsigned *mhz) {
  return say(mhz, clock == MEMORY_CLOCK ? MEMORY_CLOCK_KHZ / 1000 : 1755);
}
Answer nvmlDeviceGetApplicationsClock(Device, unsigned, unsigned *) { return NOT_SUPPORTED; }
Answer nvmlDeviceGetTemperature(Device, unsigned, unsigned *celsius) { return say(celsius, 50); }

Answer nvmlDeviceGetTotalEnergyConsumption(Device, unsigned long long *mj) {
  *mj = static_cast<unsigned long long>(1000 * POWER_W * last_refresh_s());
  return in_slices() ? NOT_SUPPORTED : SUCCESS;
}

// This process first, then as many others as the test asks for.
Answer nvmlDeviceGetComputeRunningProcesses_v3(Device, unsigned *count, Process *found) {
  const unsigned all = 1 + std::stoi(setting("EMULATED_GPU_OTHERS", "0")), room = *count;
  *count = all;
  if (in_slices()) return NO_PERMISSION;
  if (room < all || !found) return INSUFFICIENT_SIZE;
  for (unsigned i = 0; i < all; ++i) found[i] = {static_cast<unsigned>(getpid()) + i, 1ull << 30, ~0u, ~0u};
  return SUCCESS;
}

// Nanoseconds for which a limit held the clocks down: that of the power 1 % of the time, heat never, which would void every time.
// This driver knows no sync boost.
Answer nvmlDeviceGetFieldValues(Device, int count, FieldValue *values) {
  for (int i = 0; i < count; ++i) {
    values[i].answer = values[i].field == SYNC_BOOST_FIELD || in_slices() ? NOT_SUPPORTED : SUCCESS;
    values[i].type = UNSIGNED_LONG_LONG;
    values[i].value = values[i].field == POWER_CAP_FIELD ? static_cast<unsigned long long>(1e7 * now_s()) : 0;
  }
  return SUCCESS;
}

// ---- GPM: two samples of the device's counters, and what happened in between

Answer nvmlGpmQueryDeviceSupport(Device, GpmSupport *asked) {
  if (asked->version != 1) return ARGUMENT_VERSION_MISMATCH;
  asked->supported = setting("EMULATED_GPU_GPM", "yes") != "no";
  return SUCCESS;
}
Answer nvmlGpmSampleAlloc(GpmSample **sample) {
  *sample = new GpmSample{0};
  return SUCCESS;
}
Answer nvmlGpmSampleFree(GpmSample *sample) {
  delete sample;
  return SUCCESS;
}
Answer nvmlGpmSampleGet(Device, GpmSample *sample) {
  const std::string gpm = setting("EMULATED_GPU_GPM", "yes");
  if (gpm != "yes" || in_slices()) return gpm == "denied" ? NO_PERMISSION : NOT_SUPPORTED;
  sample->at_s = last_refresh_s();
  return SUCCESS;
}

Answer nvmlGpmMetricsGet(GpmMetrics *asked) {
  constexpr unsigned MULTIPROCESSORS_BUSY = 2, TENSOR_CORES_BUSY = 5, MEMORY_BUSY = 10;
  if (asked->version != 1) return ARGUMENT_VERSION_MISMATCH;
  if (!asked->first || !asked->second || asked->second->at_s <= asked->first->at_s) return INVALID_ARGUMENT;
  for (unsigned i = 0; i < asked->count; ++i) {
    GpmMetric &one = asked->metrics[i];
    one.answer = SUCCESS;
    switch (one.metric) {
    case MULTIPROCESSORS_BUSY: one.value = 88; break;
    case TENSOR_CORES_BUSY: one.value = 12; break;
    case MEMORY_BUSY: one.value = 61.5; break;
    default: one.answer = NOT_SUPPORTED;
    }
  }
  return SUCCESS;
}
}
