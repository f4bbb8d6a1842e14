#include "portability/instruction_set.h"

#include <array>
#include <atomic>

namespace graphbox {
namespace {

constexpr std::array kSets = {InstructionSet::kBaseline, InstructionSet::kAvx2, InstructionSet::kAvx512};

std::size_t number_of_sets() {
#if defined(GRAPHBOX_HAS_SETS_ABOVE_BASELINE)
  if (__builtin_cpu_supports("x86-64-v4")) {
    return 3;
  }
  return __builtin_cpu_supports("x86-64-v3") ? 2 : 1;
#else
  return 1;
#endif
}

std::atomic<InstructionSet>& chosen() {
  static std::atomic<InstructionSet> set = instruction_sets().back();
  return set;
}

}  // namespace

std::span<const InstructionSet> instruction_sets() {
  static const std::size_t count = number_of_sets();
  return std::span(kSets).first(count);
}

const char* name_of(InstructionSet set) {
  switch (set) {
    case InstructionSet::kBaseline:
      return "baseline";
    case InstructionSet::kAvx2:
      return "avx2";
    case InstructionSet::kAvx512:
      return "avx512";
  }
  return "";
}

InstructionSet instruction_set() { return chosen().load(std::memory_order_relaxed); }

void use_instruction_set(InstructionSet set) { chosen().store(set, std::memory_order_relaxed); }

}  // namespace graphbox
