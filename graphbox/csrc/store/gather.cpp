#include "store/gather.h"

#include "store/arrays.h"

namespace graphbox {
namespace {

// A length that the compiler knows makes the copies of short rows a few instructions.
template <std::uint64_t kRowBytes>
void gather_as(const RowTable& table, std::span<const std::int64_t> index, int threads, std::byte* out) {
  const std::uint64_t bytes = kRowBytes > 0 ? kRowBytes : table.row_bytes;
  const auto range_of = [bytes, out, data = table.data, rows = index.data()](std::int64_t i) {
    const std::uint64_t length = kRowBytes > 0 ? kRowBytes : bytes;
    return CopiedRange{data + static_cast<std::uint64_t>(rows[i]) * length,
                       out + static_cast<std::uint64_t>(i) * length, length};
  };
  gather_all(static_cast<std::int64_t>(index.size()), index.size() * bytes, threads, range_of);
}

}  // namespace

void gather_rows(const RowTable& table, std::span<const std::int64_t> index, int threads, std::byte* out) {
  check_index(index, table.rows, "index");
  switch (table.row_bytes) {
    case 0:
      return;
    case 1:
      return gather_as<1>(table, index, threads, out);
    case 4:
      return gather_as<4>(table, index, threads, out);
    case 8:
      return gather_as<8>(table, index, threads, out);
    case 64:
      return gather_as<64>(table, index, threads, out);
    case 256:
      return gather_as<256>(table, index, threads, out);
    case 512:
      return gather_as<512>(table, index, threads, out);
    default:
      return gather_as<0>(table, index, threads, out);
  }
}

}  // namespace graphbox
