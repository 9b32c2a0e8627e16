// The CUDA runtime's streams, events and graphs, without a device. Work that is submitted is counted and, within a capture,
// becomes a node; kernels are never done. What CUDA prohibits during a capture is refused with CUDA's own error and
// invalidates the capture, as on a GPU.
#include "runtime.h"

#include <pthread.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <set>
#include <vector>

namespace {

struct Node {
  cudaGraphNodeType type;
  const std::string *kernel; // its name, for a kernel
};

struct Graph {
  std::vector<std::unique_ptr<Node>> nodes;
  std::vector<long> values; // tokens of the operations whose values a replay computes, in their order
};
using GraphHandle = std::shared_ptr<Graph>;

struct Stream;
// How many nodes of each stream come before something, in one capture.
using Order = std::map<Stream *, size_t>;

struct Capture {
  unsigned long long id;
  cudaStreamCaptureMode mode;
  pthread_t thread;
  Stream *origin;
  GraphHandle graph;
  std::set<Stream *> streams;
  bool invalid = false;
};

struct Stream {
  bool blocking = true; // whether it waits for the legacy stream and is waited for
  int priority = 0;
  Capture *capture = nullptr;
  size_t added = 0; // nodes, in this capture
  Order before;
};

struct Event {
  unsigned flags = 0;
  bool recorded = false;
  double at_s = 0;
  unsigned long long capture = 0; // the one that it was recorded in
  Order before;
};

Stream legacy, of_thread;
std::set<Capture *> captures;
unsigned long long captures_begun = 0;
long operations = 0, waits = 0;
std::vector<std::string> faults, loaded;
bool broken = false; // an operation's values could not be computed: every later call fails, as after a device assert
thread_local cudaError_t last_error = cudaSuccess;
thread_local cudaStreamCaptureMode mode_of_thread = cudaStreamCaptureModeGlobal;
int (*compute)(const long *tokens, size_t count) = nullptr;

double now_s() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec + 1e-9 * now.tv_nsec;
}

Stream *stream_of(cudaStream_t handle) {
  if (handle == nullptr || handle == cudaStreamLegacy) return &legacy;
  return handle == cudaStreamPerThread ? &of_thread : reinterpret_cast<Stream *>(handle);
}

Capture *live_capture(unsigned long long id) {
  for (Capture *one : captures)
    if (one->id == id) return one;
  return nullptr;
}

void invalidate_all() {
  for (Capture *one : captures) one->invalid = true;
}

// The legacy stream waits for every blocking stream, so it may not be used while one of them is captured.
cudaError_t refuse_legacy(const Stream *stream, const char *call) {
  if (stream != &legacy) return cudaSuccess;
  for (const Capture *one : captures)
    for (const Stream *taking_part : one->streams)
      if (taking_part->blocking) {
        invalidate_all();
        return failed(cudaErrorStreamCaptureImplicit, call);
      }
  return cudaSuccess;
}

} // namespace

cudaError_t refuse_within_captures(const char *call) {
  if (mode_of_thread == cudaStreamCaptureModeRelaxed) return cudaSuccess;
  for (const Capture *one : captures) {
    const bool own = pthread_equal(one->thread, pthread_self());
    const bool by_own = own && one->mode != cudaStreamCaptureModeRelaxed;
    const bool by_other =
        !own && one->mode == cudaStreamCaptureModeGlobal && mode_of_thread == cudaStreamCaptureModeGlobal;
    if (by_own || by_other) {
      invalidate_all();
      return failed(cudaErrorStreamCaptureUnsupported, call);
    }
  }
  return cudaSuccess;
}

cudaError_t refuse_wait(const char *call, bool captured, cudaError_t error) {
  ++waits;
  if (!captured) return refuse_within_captures(call);
  invalidate_all();
  return failed(error, call);
}

cudaError_t submit(
    cudaStream_t handle, cudaGraphNodeType type, const std::string *kernel, const char *call, bool *captured) {
  Stream *stream = stream_of(handle);
  ++operations;
  *captured = false;
  if (broken) return failed(cudaErrorAssert, call);
  if (cudaError_t error = refuse_legacy(stream, call)) return error;
  if (stream->capture) {
    *captured = true;
    ++stream->added;
    stream->capture->graph->nodes.push_back(std::make_unique<Node>(Node{type, kernel}));
    return cudaSuccess;
  }
  for (const Capture *one : captures)
    if (pthread_equal(one->thread, pthread_self())) {
      const std::string what = std::string(call) + (kernel ? " of " + *kernel : "");
      emulated_fault((what + ": on a stream that is not captured, by the thread that captures: no replay does it").c_str());
    }
  return cudaSuccess;
}

std::recursive_mutex &runtime_mutex() {
  static std::recursive_mutex one;
  return one;
}

cudaError_t failed(cudaError_t error, const std::string &call) {
  emulated_fault((call + ": " + cudaGetErrorName(error)).c_str());
  return last_error = error;
}

cudaError_t out_of_memory() { return last_error = cudaErrorMemoryAllocation; }

extern "C" {

// ---- for the other libraries, and for Python

int emulated_kernel(const std::string *called, void *stream) {
  Locked lock;
  bool captured;
  return submit(static_cast<cudaStream_t>(stream), cudaGraphNodeTypeKernel, called, "a launch", &captured);
}

const std::string *emulated_name_of_node(void *node) { return static_cast<Node *>(node)->kernel; }

void emulated_loaded(const char *name) {
  Locked lock;
  loaded.push_back(name);
}

void emulated_fault(const char *what) {
  Locked lock;
  faults.push_back(what);
  fprintf(stderr, "emulated GPU: %s\n", what);
}

// Entry `number` of the kernels loaded (list 0) or the faults (list 1); null behind the last.
const char *emulated_entry(int list, size_t number) {
  Locked lock;
  const auto &all = list ? faults : loaded;
  return number < all.size() ? all[number].c_str() : nullptr;
}

long emulated_operations() { return operations; }

long emulated_waits() { return waits; }

// `computes` returns 0 when it has computed the operations of these tokens; it is called at each replay.
void emulated_computes(int (*computes)(const long *, size_t)) { compute = computes; }

// Whether the stream is captured: then the operation of this token is computed by replays, not now.
int emulated_captured(void *handle, long token) {
  Locked lock;
  Stream *stream = stream_of(static_cast<cudaStream_t>(handle));
  if (!stream->capture) return 0;
  stream->capture->graph->values.push_back(token);
  return 1;
}

// ---- streams

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *made, unsigned flags, int priority) {
  auto *stream = new Stream;
  stream->blocking = !(flags & cudaStreamNonBlocking);
  stream->priority = priority;
  *made = reinterpret_cast<cudaStream_t>(stream);
  return cudaSuccess;
}
cudaError_t cudaStreamCreate(cudaStream_t *made) { return cudaStreamCreateWithPriority(made, cudaStreamDefault, 0); }
cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamGetPriority(cudaStream_t handle, int *priority) {
  *priority = stream_of(handle)->priority;
  return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
  Locked lock;
  return refuse_wait("cudaStreamQuery", stream_of(handle)->capture, cudaErrorStreamCaptureUnsupported);
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  Locked lock;
  if (broken) return failed(cudaErrorAssert, "cudaStreamSynchronize");
  return refuse_wait("cudaStreamSynchronize", stream_of(handle)->capture, cudaErrorStreamCaptureUnsupported);
}

cudaError_t cudaDeviceSynchronize() {
  Locked lock;
  if (broken) return failed(cudaErrorAssert, "cudaDeviceSynchronize");
  return refuse_wait("cudaDeviceSynchronize", !captures.empty(), cudaErrorStreamCaptureUnsupported);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t waited, unsigned) {
  Locked lock;
  Stream *stream = stream_of(handle);
  auto *event = reinterpret_cast<Event *>(waited);
  Capture *of_event = live_capture(event->capture);
  if (!event->recorded) return cudaSuccess;
  if (stream->capture && stream->capture != of_event) {
    stream->capture->invalid = true;
    return failed(cudaErrorStreamCaptureIsolation, "cudaStreamWaitEvent: a capture waits for work outside it");
  }
  if (!of_event) return cudaSuccess;
  if (cudaError_t error = refuse_legacy(stream, "cudaStreamWaitEvent")) return error;
  if (!stream->capture) { // from here on it takes part
    stream->capture = of_event;
    of_event->streams.insert(stream);
    ++stream->added;
  }
  for (const auto &[other, count] : event->before) stream->before[other] = std::max(stream->before[other], count);
  return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t called, void *with) {
  bool captured;
  {
    Locked lock;
    if (cudaError_t error = submit(stream, cudaGraphNodeTypeHost, nullptr, "cudaLaunchHostFunc", &captured)) return error;
  }
  if (!captured) called(with);
  return cudaSuccess;
}

cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t called, void *with, unsigned) {
  {
    Locked lock;
    if (cudaError_t error = refuse_wait("cudaStreamAddCallback", stream_of(stream)->capture, cudaErrorStreamCaptureUnsupported))
      return error;
  }
  called(stream, cudaSuccess, with);
  return cudaSuccess;
}

// ---- events

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *made, unsigned flags) {
  auto *event = new Event;
  event->flags = flags;
  *made = reinterpret_cast<cudaEvent_t>(event);
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t *made) { return cudaEventCreateWithFlags(made, cudaEventDefault); }
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete reinterpret_cast<Event *>(event);
  return cudaSuccess;
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t recorded, cudaStream_t handle, unsigned) {
  Locked lock;
  auto *event = reinterpret_cast<Event *>(recorded);
  Stream *stream = stream_of(handle);
  if (cudaError_t error = refuse_legacy(stream, "cudaEventRecord")) return error;
  event->recorded = true;
  event->at_s = now_s();
  event->capture = stream->capture ? stream->capture->id : 0;
  event->before = stream->before;
  event->before[stream] = stream->added;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) { return cudaEventRecordWithFlags(event, stream, 0); }

cudaError_t cudaEventQuery(cudaEvent_t event) {
  Locked lock;
  return refuse_wait("cudaEventQuery", live_capture(reinterpret_cast<Event *>(event)->capture), cudaErrorCapturedEvent);
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  Locked lock;
  const bool captured = live_capture(reinterpret_cast<Event *>(event)->capture);
  return refuse_wait("cudaEventSynchronize", captured, cudaErrorCapturedEvent);
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t begin, cudaEvent_t end) {
  Locked lock;
  auto *first = reinterpret_cast<Event *>(begin), *second = reinterpret_cast<Event *>(end);
  for (const Event *one : {first, second})
    if (!one->recorded || one->capture || one->flags & cudaEventDisableTiming)
      return failed(cudaErrorInvalidResourceHandle, "cudaEventElapsedTime");
  *ms = std::max(1e-3f, static_cast<float>(1e3 * (second->at_s - first->at_s)));
  return cudaSuccess;
}

// ---- capture

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode *mode) {
  std::swap(*mode, mode_of_thread);
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  Locked lock;
  Stream *stream = stream_of(handle);
  if (stream == &legacy) return failed(cudaErrorStreamCaptureUnsupported, "cudaStreamBeginCapture of the legacy stream");
  if (stream->capture) return failed(cudaErrorIllegalState, "cudaStreamBeginCapture");
  stream->capture = new Capture{++captures_begun, mode, pthread_self(), stream, std::make_shared<Graph>(), {stream}};
  captures.insert(stream->capture);
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t *graph) {
  Locked lock;
  Stream *stream = stream_of(handle);
  *graph = nullptr;
  if (!stream->capture) return failed(cudaErrorIllegalState, "cudaStreamEndCapture without a capture");
  if (stream->capture->origin != stream) return failed(cudaErrorStreamCaptureUnmatched, "cudaStreamEndCapture");
  std::unique_ptr<Capture> ended(stream->capture);
  const bool own = pthread_equal(ended->thread, pthread_self()) || ended->mode == cudaStreamCaptureModeRelaxed;
  bool joined = true;
  for (Stream *other : ended->streams) joined = joined && (other == stream || stream->before[other] >= other->added);
  for (Stream *other : ended->streams) {
    other->capture = nullptr;
    other->added = 0;
    other->before.clear();
  }
  captures.erase(ended.get());
  if (ended->invalid) return failed(cudaErrorStreamCaptureInvalidated, "cudaStreamEndCapture");
  if (!own) return failed(cudaErrorStreamCaptureWrongThread, "cudaStreamEndCapture");
  if (!joined)
    return failed(cudaErrorStreamCaptureUnjoined, "cudaStreamEndCapture: a stream that took part was not waited for");
  *graph = reinterpret_cast<cudaGraph_t>(new GraphHandle(ended->graph));
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus *status) {
  return cudaStreamGetCaptureInfo(handle, status, nullptr, nullptr, nullptr, nullptr, nullptr);
}

cudaError_t cudaStreamGetCaptureInfo(
    cudaStream_t handle, cudaStreamCaptureStatus *status, unsigned long long *id, cudaGraph_t *graph,
    const cudaGraphNode_t **dependencies, const cudaGraphEdgeData **edges, size_t *count) {
  Locked lock;
  Stream *stream = stream_of(handle);
  *status = cudaStreamCaptureStatusNone;
  if (cudaError_t error = refuse_legacy(stream, "cudaStreamGetCaptureInfo")) return error;
  const Capture *capture = stream->capture;
  if (capture) *status = capture->invalid ? cudaStreamCaptureStatusInvalidated : cudaStreamCaptureStatusActive;
  if (id) *id = capture ? capture->id : 0;
  if (graph) *graph = nullptr; // nobody adds nodes by hand
  if (dependencies) *dependencies = nullptr;
  if (edges) *edges = nullptr;
  if (count) *count = 0;
  return cudaSuccess;
}

// ---- graphs

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count) {
  Locked lock;
  const auto &all = (*reinterpret_cast<GraphHandle *>(graph))->nodes;
  if (nodes) {
    *count = std::min(*count, all.size());
    for (size_t i = 0; i < *count; ++i) nodes[i] = reinterpret_cast<cudaGraphNode_t>(all[i].get());
  } else {
    *count = all.size();
  }
  return cudaSuccess;
}

cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, cudaGraphNodeType *type) {
  *type = reinterpret_cast<Node *>(node)->type;
  return cudaSuccess;
}

cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t, cudaGraphNode_t *, cudaGraphEdgeData *, size_t *count) {
  *count = 0;
  return cudaSuccess;
}

cudaError_t cudaGraphDebugDotPrint(cudaGraph_t, const char *, unsigned) { return cudaErrorNotSupported; }

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  Locked lock;
  delete reinterpret_cast<GraphHandle *>(graph);
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *made, cudaGraph_t graph, unsigned long long) {
  Locked lock;
  *made = reinterpret_cast<cudaGraphExec_t>(new GraphHandle(*reinterpret_cast<GraphHandle *>(graph)));
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  Locked lock;
  delete reinterpret_cast<GraphHandle *>(graph);
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t launched, cudaStream_t handle) {
  std::vector<long> values;
  {
    Locked lock;
    bool captured;
    const GraphHandle graph = *reinterpret_cast<GraphHandle *>(launched);
    if (cudaError_t error = submit(handle, cudaGraphNodeTypeGraph, nullptr, "cudaGraphLaunch", &captured)) return error;
    if (captured) {
      auto &outer = stream_of(handle)->capture->graph->values;
      outer.insert(outer.end(), graph->values.begin(), graph->values.end());
      return cudaSuccess;
    }
    values = graph->values;
  }
  // Without the lock: Python computes, and whoever holds its own lock may wait for ours.
  if (compute && !values.empty() && compute(values.data(), values.size())) {
    Locked lock;
    broken = true;
    return failed(cudaErrorAssert, "cudaGraphLaunch");
  }
  return cudaSuccess;
}

// ---- errors

const char *cudaGetErrorName(cudaError_t error) {
#define NAMED(name) \
  case name: \
    return #name
  switch (error) {
    NAMED(cudaSuccess);
    NAMED(cudaErrorInvalidValue);
    NAMED(cudaErrorMemoryAllocation);
    NAMED(cudaErrorInvalidConfiguration);
    NAMED(cudaErrorInvalidDevice);
    NAMED(cudaErrorInvalidResourceHandle);
    NAMED(cudaErrorIllegalState);
    NAMED(cudaErrorAssert);
    NAMED(cudaErrorNotSupported);
    NAMED(cudaErrorStreamCaptureUnsupported);
    NAMED(cudaErrorStreamCaptureInvalidated);
    NAMED(cudaErrorStreamCaptureUnmatched);
    NAMED(cudaErrorStreamCaptureUnjoined);
    NAMED(cudaErrorStreamCaptureIsolation);
    NAMED(cudaErrorStreamCaptureImplicit);
    NAMED(cudaErrorStreamCaptureWrongThread);
    NAMED(cudaErrorCapturedEvent);
  default:
    return "an error without a name here";
  }
#undef NAMED
}
const char *cudaGetErrorString(cudaError_t error) { return cudaGetErrorName(error); }
cudaError_t cudaGetLastError() {
  const cudaError_t error = last_error;
  last_error = broken ? cudaErrorAssert : cudaSuccess;
  return error;
}
cudaError_t cudaPeekAtLastError() { return last_error; }
}
