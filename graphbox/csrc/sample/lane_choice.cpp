#include "sample/lane_choice.h"

#include <array>
#include <cstddef>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace graphbox {

#if defined(__x86_64__)

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // GCC's own headers: bug 105593
#endif

namespace avx512 {

#define GRAPHBOX_LANES_TARGET __attribute__((target("avx512f")))
#define GRAPHBOX_LANES_INLINE GRAPHBOX_LANES_TARGET inline __attribute__((always_inline))

using Vector = __m512i;
using Mask = __mmask16;
constexpr std::uint32_t kWidth = 16;

GRAPHBOX_LANES_INLINE Vector load(const std::uint32_t* from) { return _mm512_load_si512(from); }
GRAPHBOX_LANES_INLINE void store(std::uint32_t* to, Vector value) { _mm512_store_si512(to, value); }
GRAPHBOX_LANES_INLINE Vector all(std::uint32_t value) { return _mm512_set1_epi32(static_cast<int>(value)); }
GRAPHBOX_LANES_INLINE Vector add(Vector a, Vector b) { return _mm512_add_epi32(a, b); }
GRAPHBOX_LANES_INLINE Vector exclusive_or(Vector a, Vector b) { return _mm512_xor_si512(a, b); }
GRAPHBOX_LANES_INLINE Mask no_lane() { return 0; }
GRAPHBOX_LANES_INLINE Mask either(Mask a, Mask b) { return static_cast<Mask>(a | b); }
GRAPHBOX_LANES_INLINE Mask equal(Vector a, Vector b) { return _mm512_cmpeq_epi32_mask(a, b); }
GRAPHBOX_LANES_INLINE Mask less(Vector a, Vector b) { return _mm512_cmplt_epu32_mask(a, b); }
GRAPHBOX_LANES_INLINE Vector select(Mask mask, Vector yes, Vector no) { return _mm512_mask_mov_epi32(no, mask, yes); }
GRAPHBOX_LANES_INLINE std::uint32_t bits(Mask mask) { return mask; }
GRAPHBOX_LANES_INLINE Vector odd_lanes(Vector value) { return _mm512_srli_epi64(value, 32); }
GRAPHBOX_LANES_INLINE Vector multiply_even(Vector a, Vector b) { return _mm512_mul_epu32(a, b); }
GRAPHBOX_LANES_INLINE Vector high_words(Vector even, Vector odd) {
  return _mm512_mask_mov_epi32(_mm512_srli_epi64(even, 32), 0xAAAA, odd);
}
GRAPHBOX_LANES_INLINE Vector low_words(Vector even, Vector odd) {
  return _mm512_mask_mov_epi32(even, 0xAAAA, _mm512_slli_epi64(odd, 32));
}

#include "sample/lane_choice.inc"

#undef GRAPHBOX_LANES_TARGET
#undef GRAPHBOX_LANES_INLINE

}  // namespace avx512

namespace avx2 {

#define GRAPHBOX_LANES_TARGET __attribute__((target("avx2")))
#define GRAPHBOX_LANES_INLINE GRAPHBOX_LANES_TARGET inline __attribute__((always_inline))

using Vector = __m256i;
using Mask = __m256i;
constexpr std::uint32_t kWidth = 8;

GRAPHBOX_LANES_INLINE Vector load(const std::uint32_t* from) {
  return _mm256_load_si256(reinterpret_cast<const __m256i*>(from));
}
GRAPHBOX_LANES_INLINE void store(std::uint32_t* to, Vector value) {
  _mm256_store_si256(reinterpret_cast<__m256i*>(to), value);
}
GRAPHBOX_LANES_INLINE Vector all(std::uint32_t value) { return _mm256_set1_epi32(static_cast<int>(value)); }
GRAPHBOX_LANES_INLINE Vector add(Vector a, Vector b) { return _mm256_add_epi32(a, b); }
GRAPHBOX_LANES_INLINE Vector exclusive_or(Vector a, Vector b) { return _mm256_xor_si256(a, b); }
GRAPHBOX_LANES_INLINE Mask no_lane() { return _mm256_setzero_si256(); }
GRAPHBOX_LANES_INLINE Mask either(Mask a, Mask b) { return _mm256_or_si256(a, b); }
GRAPHBOX_LANES_INLINE Mask equal(Vector a, Vector b) { return _mm256_cmpeq_epi32(a, b); }
GRAPHBOX_LANES_INLINE Mask less(Vector a, Vector b) {
  const Vector sign = _mm256_set1_epi32(INT32_MIN);  // there is no comparison of unsigned words
  return _mm256_cmpgt_epi32(_mm256_xor_si256(b, sign), _mm256_xor_si256(a, sign));
}
GRAPHBOX_LANES_INLINE Vector select(Mask mask, Vector yes, Vector no) { return _mm256_blendv_epi8(no, yes, mask); }
GRAPHBOX_LANES_INLINE std::uint32_t bits(Mask mask) {
  return static_cast<std::uint32_t>(_mm256_movemask_ps(_mm256_castsi256_ps(mask)));
}
GRAPHBOX_LANES_INLINE Vector odd_lanes(Vector value) { return _mm256_srli_epi64(value, 32); }
GRAPHBOX_LANES_INLINE Vector multiply_even(Vector a, Vector b) { return _mm256_mul_epu32(a, b); }
GRAPHBOX_LANES_INLINE Vector high_words(Vector even, Vector odd) {
  return _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xAA);
}
GRAPHBOX_LANES_INLINE Vector low_words(Vector even, Vector odd) {
  return _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xAA);
}

#include "sample/lane_choice.inc"

#undef GRAPHBOX_LANES_TARGET
#undef GRAPHBOX_LANES_INLINE

}  // namespace avx2

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

std::span<const LaneChooser> lane_choosers() {
  static const std::array<LaneChooser, 2> all = {&avx512::choose, &avx2::choose};
  static const bool has_avx512 = __builtin_cpu_supports("avx512f") != 0;
  static const bool has_avx2 = __builtin_cpu_supports("avx2") != 0;
  const std::size_t first = has_avx512 ? 0 : 1;
  return std::span(all).subspan(first, has_avx2 ? all.size() - first : 0);
}

#else

std::span<const LaneChooser> lane_choosers() { return {}; }

#endif

}  // namespace graphbox
