// CRC-32C (Castagnoli), the checksum of our binary files.
#pragma once

#include <cstddef>
#include <cstdint>

namespace graphbox {

// The checksum of `bytes` bytes, going on from that of the bytes before them (0 at the start).
std::uint32_t crc32c(std::uint32_t before, const void* data, std::size_t bytes);

// The same without the instruction of newer processors; for them without it, and for tests.
std::uint32_t crc32c_portable(std::uint32_t before, const void* data, std::size_t bytes);

}  // namespace graphbox
