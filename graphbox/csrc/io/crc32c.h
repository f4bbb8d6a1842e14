// CRC-32C (Castagnoli), the checksum of our binary files.
#pragma once

#include <cstddef>
#include <cstdint>

namespace graphbox {

// The checksum of `bytes` bytes, going on from that of the bytes before them (0 at the start).
std::uint32_t crc32c(std::uint32_t before, const void* data, std::size_t bytes);

// The checksum of two parts one after the other, from the checksum of each and the length of the second.
std::uint32_t crc32c_joined(std::uint32_t first, std::uint32_t second, std::uint64_t second_bytes);

// The same as crc32c() without the instruction of newer processors; for them without it, and for tests.
std::uint32_t crc32c_portable(std::uint32_t before, const void* data, std::size_t bytes);

}  // namespace graphbox
