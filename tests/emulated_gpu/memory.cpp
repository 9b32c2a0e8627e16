// The emulated device's memory: pages of this process. Copies and fills outside a capture are done at once.
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "runtime.h"

namespace {

struct Block {
  size_t bytes;
  bool host;
};

std::map<char *, Block> blocks;
size_t device_bytes_used = 0;

constexpr size_t PAGE = 4096;
constexpr size_t LARGE = 64 << 20;
constexpr size_t BYTES_OF_CONTEXT = 530'000'000;

size_t device_bytes() {
  static const size_t bytes = std::stoull(setting("EMULATED_GPU_BYTES", "84490977280"));
  return bytes;
}

void *map_memory(size_t bytes, bool host) {
  const size_t whole = std::max(PAGE, (bytes + PAGE - 1) / PAGE * PAGE);
  if (!host && device_bytes_used + whole + BYTES_OF_CONTEXT > device_bytes()) return nullptr;
  // Not reserved: a model of 16 GB whose kernels do nothing touches none of its pages.
  void *found = mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (found == MAP_FAILED) return nullptr;
  blocks[static_cast<char *>(found)] = {whole, host};
  if (!host) device_bytes_used += whole;
  return found;
}

// The addresses are never given out again, so whoever still uses them is found out.
void unmap_memory(void *address) {
  auto found = blocks.find(static_cast<char *>(address));
  if (found == blocks.end()) return;
  if (!found->second.host) device_bytes_used -= found->second.bytes;
  mmap(address, found->second.bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  blocks.erase(found);
}

const Block *block_of(const void *address, size_t bytes = 1) {
  const char *begin = static_cast<const char *>(address);
  auto next = blocks.upper_bound(const_cast<char *>(begin));
  if (next == blocks.begin()) return nullptr;
  const auto &[start, block] = *--next;
  return begin + bytes <= start + block.bytes ? &block : nullptr;
}

cudaError_t allocate(void **address, size_t bytes, bool host, const char *call) {
  Locked lock;
  if (cudaError_t error = refuse_within_captures(call)) return error;
  *address = map_memory(bytes, host);
  return *address ? cudaSuccess : out_of_memory();
}

cudaError_t release(void *address, const char *call) {
  Locked lock;
  if (!address) return cudaSuccess;
  if (cudaError_t error = refuse_within_captures(call)) return error;
  unmap_memory(address);
  return cudaSuccess;
}

// Whole pages of zeros are given back: a model's buffers at full size must not fill this machine's memory.
bool gives_pages_back(const void *to, size_t bytes) { return bytes >= LARGE && reinterpret_cast<size_t>(to) % PAGE == 0; }

size_t clear_pages(void *to, size_t bytes) {
  const size_t pages = bytes / PAGE * PAGE;
  madvise(to, pages, MADV_DONTNEED);
  return pages;
}

// Of a large copy only pages that hold something are written: reading a page that nobody wrote takes no memory.
void move_bytes(void *to, const void *from, size_t bytes) {
  char *target = static_cast<char *>(to);
  const char *source = static_cast<const char *>(from);
  const bool overlap = target < source + bytes && source < target + bytes;
  if (overlap || !gives_pages_back(to, bytes)) {
    memmove(to, from, bytes);
    return;
  }
  static const char zeros[PAGE] = {};
  const size_t pages = clear_pages(to, bytes);
  for (size_t at = 0; at < pages; at += PAGE)
    if (memcmp(source + at, zeros, PAGE)) memcpy(target + at, source + at, PAGE);
  memcpy(target + pages, source + pages, bytes - pages);
}

cudaError_t copy(void *to, const void *from, size_t bytes, cudaStream_t stream, const char *call) {
  Locked lock;
  bool captured;
  if (cudaError_t error = submit(stream, cudaGraphNodeTypeMemcpy, nullptr, call, &captured)) return error;
  if (captured && !(block_of(to) && block_of(from)))
    emulated_fault((std::string(call) + " of pageable memory within a capture: replays read what lies there then").c_str());
  if (!captured) move_bytes(to, from, bytes);
  return cudaSuccess;
}

} // namespace

extern "C" {

int emulated_kind_of_memory(const void *address) {
  Locked lock;
  const Block *found = block_of(address);
  return found ? found->host ? 2 : 1 : 0;
}

// Whether all of these bytes are memory that the device has given out and not taken back.
int emulated_is_there(const void *address, size_t bytes) {
  Locked lock;
  return block_of(address, bytes) != nullptr;
}

cudaError_t cudaMalloc(void **address, size_t bytes) { return allocate(address, bytes, false, "cudaMalloc"); }
cudaError_t cudaFree(void *address) { return release(address, "cudaFree"); }
cudaError_t cudaMallocAsync(void **address, size_t bytes, cudaStream_t) {
  return allocate(address, bytes, false, "cudaMallocAsync");
}
cudaError_t cudaFreeAsync(void *address, cudaStream_t) { return release(address, "cudaFreeAsync"); }
cudaError_t cudaHostAlloc(void **address, size_t bytes, unsigned) { return allocate(address, bytes, true, "cudaHostAlloc"); }
cudaError_t cudaFreeHost(void *address) { return release(address, "cudaFreeHost"); }
cudaError_t cudaHostRegister(void *, size_t, unsigned) { return cudaSuccess; }
cudaError_t cudaHostUnregister(void *) { return cudaSuccess; }

cudaError_t cudaMemGetInfo(size_t *free, size_t *total) {
  Locked lock;
  *total = device_bytes();
  *free = *total - BYTES_OF_CONTEXT - device_bytes_used;
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *found, const void *address) {
  Locked lock;
  const Block *block = block_of(address);
  *found = {};
  found->type = !block ? cudaMemoryTypeUnregistered : block->host ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
  found->device = block ? 0 : cudaInvalidDeviceId;
  found->devicePointer = block ? const_cast<void *>(address) : nullptr;
  found->hostPointer = block && block->host ? const_cast<void *>(address) : nullptr;
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  return copy(to, from, bytes, stream, "cudaMemcpyAsync");
}

cudaError_t cudaMemcpyPeerAsync(void *to, int, const void *from, int, size_t bytes, cudaStream_t stream) {
  return copy(to, from, bytes, stream, "cudaMemcpyPeerAsync");
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind) {
  Locked lock;
  if (cudaError_t error = refuse_wait("cudaMemcpy", false, cudaSuccess)) return error;
  return copy(to, from, bytes, nullptr, "cudaMemcpy");
}

cudaError_t cudaMemsetAsync(void *to, int byte, size_t bytes, cudaStream_t stream) {
  Locked lock;
  bool captured;
  if (cudaError_t error = submit(stream, cudaGraphNodeTypeMemset, nullptr, "cudaMemsetAsync", &captured)) return error;
  if (captured) return cudaSuccess;
  if (byte || !gives_pages_back(to, bytes)) {
    memset(to, byte, bytes);
  } else {
    const size_t pages = clear_pages(to, bytes);
    memset(static_cast<char *>(to) + pages, 0, bytes - pages);
  }
  return cudaSuccess;
}

cudaError_t cudaMemset(void *to, int byte, size_t bytes) { return cudaMemsetAsync(to, byte, bytes, nullptr); }
}
