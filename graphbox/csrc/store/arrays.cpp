#include "store/arrays.h"

#include <algorithm>

#include "errors/error.h"
#include "store/gather.h"

namespace graphbox {
namespace {

std::uint64_t address_of(const Store& store, const StoredArray& array) {
  return store.space().base(array.file) + array.offset;
}

// Negative ones are the largest. Without an early end, which keeps it to a fraction of a nanosecond each.
GRAPHBOX_CLONES std::uint64_t largest(std::span<const std::int64_t> values) {
  std::uint64_t most = 0;
  for (const std::int64_t value : values) {
    most = std::max(most, static_cast<std::uint64_t>(value));
  }
  return most;
}

// Bytes that entry i of the requests reads, and their target.
struct WantedBytes {
  std::uint64_t address;
  std::uint64_t bytes;
  std::byte* target;
};

// Reads wanted(i) for each request: straight from memory where all is there.
template <typename Wanted>
void read_each(Store& store, const Requests& requests, std::uint64_t total_bytes, const Wanted& wanted) {
  const auto count = static_cast<std::int64_t>(requests.index.size());
  const std::byte* const image = store.image();
  const bool streamed = total_bytes >= kStreamedBytes;
  if (image == nullptr) {
    Requests sized = requests;
    sized.streamed = streamed;
    store.read(sized, [&](const std::uint32_t* positions, std::int64_t first, std::int64_t last,
                             std::vector<Fragment>& fragments) {
      for (std::int64_t entry = first; entry < last; ++entry) {
        const WantedBytes each = wanted(positions != nullptr ? positions[entry] : static_cast<std::size_t>(entry));
        store.append(each.address, each.bytes, each.target, fragments);
      }
    });
    return;
  }
  // Captured by value, so that the compiler knows that the copies do not change it.
  const auto range_of = [wanted, image](std::int64_t i) {
    const WantedBytes each = wanted(static_cast<std::size_t>(i));
    return CopiedRange{image + each.address, each.target, each.bytes};
  };
  gather_all(count, total_bytes, requests.threads, range_of);
  store.count_hits(requests.index.size());
}

}  // namespace

void check_index(std::span<const std::int64_t> index, std::int64_t limit, const std::string& what) {
  const auto below = static_cast<std::uint64_t>(std::max<std::int64_t>(limit, 0));
  if (index.empty() || largest(index) < below) {
    return;
  }
  for (std::size_t i = 0; i < index.size(); ++i) {
    if (static_cast<std::uint64_t>(index[i]) >= below) {
      throw Error(ErrorKind::kUsage,
                  "expected " + what + (limit > 0 ? " from 0 to " + std::to_string(limit - 1) : ": none at all") +
                      ", received " + std::to_string(index[i]) + " at position " + std::to_string(i),
                  what);
    }
  }
}

void read_rows(Store& store, const StoredArray& array, const Requests& requests, std::byte* out,
               const std::int64_t* places) {
  const std::uint64_t base = address_of(store, array);
  const std::uint64_t bytes = array.entry_bytes;
  if (places != nullptr) {
    read_each(store, requests, requests.index.size() * bytes,
              [base, bytes, out, places, index = requests.index](std::size_t i) {
                return WantedBytes{base + static_cast<std::uint64_t>(index[i]) * bytes, bytes,
                                   out + static_cast<std::uint64_t>(places[i]) * bytes};
              });
    return;
  }
  read_each(store, requests, requests.index.size() * bytes, [base, bytes, out, index = requests.index](std::size_t i) {
    return WantedBytes{base + static_cast<std::uint64_t>(index[i]) * bytes, bytes, out + i * bytes};
  });
}

void read_bounds(Store& store, const StoredArray& offsets, std::int64_t items, const Requests& requests,
                 std::int64_t* bounds) {
  const std::uint64_t base = address_of(store, offsets);
  constexpr std::uint64_t kBytes = 2 * sizeof(std::int64_t);
  read_each(store, requests, requests.index.size() * kBytes, [base, bounds, index = requests.index](std::size_t i) {
    return WantedBytes{base + static_cast<std::uint64_t>(index[i]) * sizeof(std::int64_t), kBytes,
                       reinterpret_cast<std::byte*>(bounds + 2 * i)};
  });
  for (std::size_t i = 0; i < requests.index.size(); ++i) {
    const std::int64_t begin = bounds[2 * i];
    const std::int64_t end = bounds[2 * i + 1];
    if (begin < 0 || begin > end || end > items) {
      throw Error(ErrorKind::kFormat,
                  "expected offsets that ascend from 0 to " + std::to_string(items) + ", received " +
                      std::to_string(begin) + " and " + std::to_string(end) + " for list " +
                      std::to_string(requests.index[i]),
                  store.space().file(offsets.file).path(), "import the graph again");
    }
  }
}

void read_items(Store& store, const StoredArray& array, const Requests& requests, const std::int64_t* bounds,
                const std::int64_t* starts, std::byte* out) {
  const std::uint64_t base = address_of(store, array);
  const std::uint64_t bytes = array.entry_bytes;
  const std::uint64_t total = static_cast<std::uint64_t>(starts[requests.index.size()]) * bytes;
  read_each(store, requests, total, [base, bytes, bounds, starts, out](std::size_t i) {
    const auto begin = static_cast<std::uint64_t>(bounds[2 * i]);
    const auto end = static_cast<std::uint64_t>(bounds[2 * i + 1]);
    return WantedBytes{base + begin * bytes, (end - begin) * bytes,
                       out + static_cast<std::uint64_t>(starts[i]) * bytes};
  });
}

}  // namespace graphbox
