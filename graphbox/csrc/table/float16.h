// Values of 16 bits (IEEE 754 binary16) and what turns them into float32 and back. Compiled for several instruction
// sets, the same bits on all.
#pragma once

#include <cstddef>
#include <cstdint>

namespace graphbox {

// Exact.
void from_float16(const std::uint16_t* halves, float* values, std::size_t count);

// To the nearest, to even between two. Beyond the largest, 65,504, that one.
void to_float16(const float* values, std::uint16_t* halves, std::size_t count);

// Up or down, by 13 random bits for each value (words[i / 2], low half first): the mean of what comes out is the value,
// so that steps too small for 16 bits are not lost. Beyond the largest, that one.
// Gupta, Agrawal, Gopalakrishnan, Narayanan, "Deep learning with limited numerical precision", ICML 2015.
void to_float16_stochastic(const float* values, const std::uint32_t* words, std::uint16_t* halves, std::size_t count);

}  // namespace graphbox
