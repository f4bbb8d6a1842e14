// Code compiled for several instruction sets, one of which is chosen in each call. Unlike GRAPHBOX_CLONES it may be a
// template, may differ between sets, and tests and benchmarks can choose a lower set than the best.
#pragma once

#include <span>
#include <type_traits>

#include "portability/cpu.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define GRAPHBOX_HAS_SETS_ABOVE_BASELINE 1
#endif

namespace graphbox {

// The baseline of the platform (SSE2 or NEON), x86-64-v3, and x86-64-v4.
enum class InstructionSet { kBaseline, kAvx2, kAvx512 };

// Those that this processor has and this build was compiled for, lowest first.
std::span<const InstructionSet> instruction_sets();
const char* name_of(InstructionSet set);

// That of calls from now on, in all threads: the highest, unless use_instruction_set() chose one of instruction_sets().
InstructionSet instruction_set();
void use_instruction_set(InstructionSet set);

template <InstructionSet kSet>
using ForSet = std::integral_constant<InstructionSet, kSet>;

namespace instruction_set_detail {

#if defined(GRAPHBOX_HAS_SETS_ABOVE_BASELINE)
template <typename Work>
[[gnu::target("arch=x86-64-v3")]] void run_avx2(const Work& work) {
  work(ForSet<InstructionSet::kAvx2>{});
}

template <typename Work>
[[gnu::target("arch=x86-64-v4")]] void run_avx512(const Work& work) {
  work(ForSet<InstructionSet::kAvx512>{});
}
#endif

}  // namespace instruction_set_detail

// Calls `work` with a ForSet. All that it calls must be GRAPHBOX_INLINE, itself too (GRAPHBOX_INLINE_LAMBDA): what is
// not inlined is compiled for the baseline.
template <typename Work>
void run_with_instruction_set(const Work& work) {
#if defined(GRAPHBOX_HAS_SETS_ABOVE_BASELINE)
  switch (instruction_set()) {
    case InstructionSet::kAvx512:
      return instruction_set_detail::run_avx512(work);
    case InstructionSet::kAvx2:
      return instruction_set_detail::run_avx2(work);
    case InstructionSet::kBaseline:
      break;
  }
#endif
  work(ForSet<InstructionSet::kBaseline>{});
}

#define GRAPHBOX_INLINE_LAMBDA __attribute__((always_inline))

}  // namespace graphbox
