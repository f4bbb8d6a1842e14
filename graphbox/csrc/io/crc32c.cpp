#include "io/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace graphbox {
namespace {

constexpr std::uint32_t kPolynomial = 0x82F63B78U;  // reflected

using Tables = std::array<std::array<std::uint32_t, 256>, 8>;

constexpr Tables make_tables() {
  Tables tables{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) {
      value = value >> 1 ^ ((value & 1U) != 0 ? kPolynomial : 0U);
    }
    tables[0][i] = value;
  }
  for (std::size_t slice = 1; slice < 8; ++slice) {
    for (std::size_t i = 0; i < 256; ++i) {
      const std::uint32_t previous = tables[slice - 1][i];
      tables[slice][i] = previous >> 8 ^ tables[0][previous & 0xFFU];
    }
  }
  return tables;
}

constexpr Tables kTables = make_tables();

#if defined(__x86_64__)

__attribute__((target("sse4.2"))) std::uint32_t crc32c_sse42(std::uint32_t before, const void* data,
                                                             std::size_t bytes) {
  const auto* next = static_cast<const unsigned char*>(data);
  std::uint64_t crc = ~before;
  for (; bytes >= 8; bytes -= 8, next += 8) {
    std::uint64_t word;
    std::memcpy(&word, next, 8);
    crc = _mm_crc32_u64(crc, word);
  }
  auto narrow = static_cast<std::uint32_t>(crc);
  for (; bytes > 0; --bytes, ++next) {
    narrow = _mm_crc32_u8(narrow, *next);
  }
  return ~narrow;
}

#endif

}  // namespace

// Kounavis and Berry, "A systematic approach to building high performance software-based CRC generators", ISCC 2005:
// eight bytes at a time.
std::uint32_t crc32c_portable(std::uint32_t before, const void* data, std::size_t bytes) {
  const auto* next = static_cast<const unsigned char*>(data);
  std::uint32_t crc = ~before;
  for (; bytes >= 8; bytes -= 8, next += 8) {
    std::uint32_t low = 0;
    std::uint32_t high = 0;
    for (unsigned i = 0; i < 4; ++i) {
      low |= std::uint32_t{next[i]} << (8 * i);
      high |= std::uint32_t{next[i + 4]} << (8 * i);
    }
    low ^= crc;
    crc = kTables[7][low & 0xFFU] ^ kTables[6][low >> 8 & 0xFFU] ^ kTables[5][low >> 16 & 0xFFU] ^
          kTables[4][low >> 24] ^ kTables[3][high & 0xFFU] ^ kTables[2][high >> 8 & 0xFFU] ^
          kTables[1][high >> 16 & 0xFFU] ^ kTables[0][high >> 24];
  }
  for (; bytes > 0; --bytes, ++next) {
    crc = crc >> 8 ^ kTables[0][(crc ^ *next) & 0xFFU];
  }
  return ~crc;
}

std::uint32_t crc32c(std::uint32_t before, const void* data, std::size_t bytes) {
#if defined(__x86_64__)
  static const bool has_instruction = __builtin_cpu_supports("sse4.2") != 0;
  if (has_instruction) {
    return crc32c_sse42(before, data, bytes);
  }
#endif
  return crc32c_portable(before, data, bytes);
}

namespace {

// The product of two polynomials modulo the checksum's, bits reflected: the highest bit is the coefficient of x^0.
std::uint32_t multiply_modulo(std::uint32_t a, std::uint32_t b) {
  std::uint32_t product = 0;
  for (std::uint32_t bit = 0x80000000U; bit != 0; bit >>= 1) {
    if ((a & bit) != 0) {
      product ^= b;
    }
    b = b >> 1 ^ ((b & 1U) != 0 ? kPolynomial : 0U);
  }
  return product;
}

}  // namespace

// Appending n bytes multiplies the first part's remainder by x^(8n); the power by repeated squaring.
std::uint32_t crc32c_joined(std::uint32_t first, std::uint32_t second, std::uint64_t second_bytes) {
  std::uint32_t power = 0x80000000U;   // x^0
  std::uint32_t square = 0x00800000U;  // x^8
  for (; second_bytes != 0; second_bytes >>= 1) {
    if ((second_bytes & 1U) != 0) {
      power = multiply_modulo(square, power);
    }
    square = multiply_modulo(square, square);
  }
  return multiply_modulo(power, first) ^ second;
}

}  // namespace graphbox
