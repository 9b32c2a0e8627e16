// Vectors of 16 float32: read from and written to bfloat16 and float32, summed, and raised to e. A compiler for narrower registers
// splits them.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace {

constexpr int LANES = 16;
constexpr int64_t NO_TOKEN = -2;  // that of harness/decoding/session.py
typedef float Floats __attribute__((vector_size(LANES * 4)));
typedef uint32_t Words __attribute__((vector_size(LANES * 4)));
typedef int32_t Whole __attribute__((vector_size(LANES * 4)));
typedef Floats AnyFloats __attribute__((aligned(4), may_alias));
typedef Words AnyWords __attribute__((aligned(2), may_alias));
typedef uint16_t Halves __attribute__((vector_size(LANES * 2)));
typedef Halves AnyHalves __attribute__((aligned(2), may_alias));

inline float widened(uint16_t bits) {
  const uint32_t wide = uint32_t(bits) << 16;
  float value;
  memcpy(&value, &wide, 4);
  return value;
}
inline float widened(float value) { return value; }

inline Floats load(const float* from) { return *reinterpret_cast<const AnyFloats*>(from); }
inline Floats load(const uint16_t* from) {
  return (Floats)(__builtin_convertvector(*reinterpret_cast<const AnyHalves*>(from), Words) << 16);
}
template <typename S>
Floats read(const S* from, int64_t left) {  // what lies behind the end is impossible
  if (left >= LANES) return load(from);
  Floats found = Floats{} - INFINITY;
  for (int i = 0; i < left; i++) found[i] = widened(from[i]);
  return found;
}
inline void store(float* to, Floats value) { *reinterpret_cast<AnyFloats*>(to) = value; }
inline void store(uint16_t* to, Floats value) {  // to nearest, ties to even; NaN stays one
  const Words bits = (Words)value, even = bits + 0x7fff + ((bits >> 16) & 1);
  const Words held = value == value ? even : Words{} + 0x7fc00000u;
  *reinterpret_cast<AnyHalves*>(to) = __builtin_convertvector(held >> 16, Halves);
}
inline void store_one(float* to, float value) { *to = value; }
inline void store_one(uint16_t* to, float value) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  *to = value == value ? (bits + 0x7fff + ((bits >> 16) & 1)) >> 16 : 0x7fc0;
}

inline float sum_of(Floats value) {
  float total[LANES / 2];
  for (int i = 0; i < LANES / 2; i++) total[i] = value[i] + value[i + LANES / 2];
  for (int width = LANES / 4; width; width /= 2)
    for (int i = 0; i < width; i++) total[i] += total[i + width];
  return total[0];
}
inline float largest(Floats value) {
  float found = value[0];
  for (int i = 1; i < LANES; i++) found = std::max(found, value[i]);
  return found;
}
inline bool any(Whole lanes) {
  uint64_t bits[LANES / 2];
  memcpy(bits, &lanes, sizeof bits);
  uint64_t found = 0;
  for (uint64_t pair : bits) found |= pair;
  return found;
}

// e^x, off by less than 2 units in the last place: 2^n times a polynomial (Taylor's, of degree 7) on half an octave.
inline Floats exponential(Floats x) {
  x = x < -87.0f ? Floats{} - 87.0f : x;
  x = x > 88.0f ? Floats{} + 88.0f : x;
  const Floats shifted = x * 1.44269504f + 12582912.0f, n = shifted - 12582912.0f;
  const Floats r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  Floats p = r * (1.0f / 5040) + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  return (Floats)((Words)p + ((Words)shifted << 23));
}

}  // namespace
