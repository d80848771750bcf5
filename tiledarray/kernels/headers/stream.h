// Stores of the host past the cache, included by tile.h.
#pragma once

// Whole lines go past the cache, which would read each from memory before it is overwritten.
using Line = long long __attribute__((vector_size(64), may_alias));
using LooseLine = long long __attribute__((vector_size(64), may_alias, aligned(1)));
#ifdef __SSE2__
#define TA_STREAM_FENCE() __builtin_ia32_sfence()  // before others are told that it is there
#else
#define TA_STREAM_FENCE()
#endif
TA_FN void stream_line(char* to, const char* from) {
  const Line line = *reinterpret_cast<const LooseLine*>(from);
#if defined(__clang__)
  __builtin_nontemporal_store(line, reinterpret_cast<Line*>(to));
#elif defined(__AVX512F__)
  __builtin_ia32_movntdq512(reinterpret_cast<Line*>(to), line);
#elif defined(__SSE2__)
  using Quarter = long long __attribute__((vector_size(16), may_alias));
  for (int k = 0; k < 4; ++k)
    __builtin_ia32_movntdq(reinterpret_cast<Quarter*>(to) + k, Quarter{line[2 * k], line[2 * k + 1]});
#else
  *reinterpret_cast<Line*>(to) = line;
#endif
}
TA_FN void stream(char* to, const char* from, idx bytes) {
  const idx head = min_idx(-reinterpret_cast<idx>(to) & 63, bytes);
  const idx lines = (bytes - head) / 64 * 64;
  __builtin_memcpy(to, from, head);
  for (idx k = head; k < head + lines; k += 64) stream_line(to + k, from + k);
  __builtin_memcpy(to + head + lines, from + head + lines, bytes - head - lines);
}
// What is streamed is collected in a chunk of its own first.
template <class T> struct Collected {
  T* home;
  T* chunk;
  TA_MEMBER T& operator[](int v) const { return chunk[v]; }
  TA_MEMBER void flush(idx w) const {
    stream(reinterpret_cast<char*>(home), reinterpret_cast<char*>(chunk), w * idx(sizeof(T)));
  }
};
template <class T> TA_FN Collected<T> collecting(T* home, T* chunk) {
  return Collected<T>{home, chunk};
}
