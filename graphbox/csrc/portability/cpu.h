// The few things that differ between compilers and processors.
#pragma once

#include <cstddef>

// GRAPHBOX_CLONES compiles a function for several instruction sets; the loader picks one for this CPU.
// Needs GNU indirect functions (not in musl), whose resolvers run before a sanitizer is ready.
#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(GRAPHBOX_SANITIZED)
#include <features.h>
#if defined(__GLIBC__)
#define GRAPHBOX_CLONES __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#endif
#endif
#ifndef GRAPHBOX_CLONES
#define GRAPHBOX_CLONES
#endif

#define GRAPHBOX_INLINE inline __attribute__((always_inline))

namespace graphbox {

__extension__ using Uint128 = unsigned __int128;

// Asks for the cache line of `address`, soon to be read. Any address is allowed: nothing is loaded.
// A function that only prefetches must be GRAPHBOX_INLINE: where GCC does not inline it, it drops the calls.
GRAPHBOX_INLINE void prefetch(const void* address) { __builtin_prefetch(address, 0, 3); }

// The same for a line soon to be written.
GRAPHBOX_INLINE void prefetch_write(const void* address) { __builtin_prefetch(address, 1, 3); }

// Between two looks at what another thread is about to change: leaves the processor to whoever shares it.
GRAPHBOX_INLINE void pause_cpu() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("isb");
#endif
}

inline constexpr std::size_t kCacheLineBytes = 64;

}  // namespace graphbox
