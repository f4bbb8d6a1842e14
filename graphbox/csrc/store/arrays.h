// Arrays in the files of a store: rows of one length, and lists given by offsets.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "store/store.h"

namespace graphbox {

// `count` entries of `entry_bytes` each, from `offset` on in a file of the store.
struct StoredArray {
  std::size_t file;
  std::uint64_t offset;
  std::uint64_t entry_bytes;
  std::int64_t count;
};

// Index entries must lie in [0, limit); `what` names them in messages.
void check_index(std::span<const std::int64_t> index, std::int64_t limit, const std::string& what);

// out[i] = the row index[i]; or out[places[i]], where there are places.
void read_rows(Store& store, const StoredArray& array, const Requests& requests, std::byte* out,
               const std::int64_t* places = nullptr);

// bounds[2 i] and bounds[2 i + 1]: where the list index[i] begins and ends among `items` items. `offsets` has one
// entry more than there are lists. Offsets that do not ascend within [0, items] are a format error.
void read_bounds(Store& store, const StoredArray& offsets, std::int64_t items, const Requests& requests,
                 std::int64_t* bounds);

// The items of list i at out + starts[i] * item bytes.
void read_items(Store& store, const StoredArray& array, const Requests& requests, const std::int64_t* bounds,
                const std::int64_t* starts, std::byte* out);

}  // namespace graphbox
