// Interface of a cache in memory for the store: copies the units it has, and takes in those that were read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "io/block_file.h"
#include "memory/buffer.h"

namespace graphbox {

// Bytes that a Buffer of so many bytes occupies.
inline std::uint64_t buffer_bytes(std::uint64_t bytes) {
  const std::uint64_t unit = bytes < kHugePageBytes ? 64 : kHugePageBytes;
  return (bytes + unit - 1) / unit * unit;
}

// Division of the space into units, which a cache holds or does not hold.
struct UnitLayout {
  std::uint64_t base;  // address of unit 0
  std::uint32_t unit_bytes;
  std::uint32_t units;

  std::uint64_t begin(std::uint32_t unit) const { return base + std::uint64_t{unit} * unit_bytes; }
};

// Bytes within one unit, wanted at `target`.
struct Fragment {
  std::byte* target;
  std::uint32_t unit;
  std::uint32_t within;  // the first, counted from the unit's first
  std::uint32_t bytes;
};

// A unit that was read because it was wanted.
struct WantedUnit {
  std::uint32_t unit;
  std::uint32_t uses;  // how many fragments wanted it
};

// A stretch of the space that was read.
struct ReadStretch {
  std::uint64_t begin;  // a multiple of kBlockBytes
  std::uint64_t end;
  const std::byte* data;
  std::span<const WantedUnit> wanted;  // wholly within it
};

// Why something is read decides what is worth keeping.
enum class Access { kBatch, kPass };

// Thread safe.
class Cache {
 public:
  virtual ~Cache() = default;
  // Copies what is here to its targets, past the processor's caches if `streamed`, and appends the other fragments to
  // `missing`.
  virtual void copy(std::span<const Fragment> fragments, bool streamed, std::vector<Fragment>& missing) = 0;
  // All of the space, where all of it is here; else null.
  virtual const std::byte* image() const { return nullptr; }
  // Takes in what is worth keeping.
  virtual void offer(const ReadStretch& stretch, Access access) = 0;
  // Memory in use, index included; never more than the budget.
  virtual std::uint64_t resident_bytes() const = 0;
};

// Holds all of a space of that many bytes once it was read. Its units are blocks.
std::unique_ptr<Cache> make_resident_cache(std::uint64_t space_bytes);
std::uint64_t resident_cache_bytes(std::uint64_t space_bytes);

// Holds as many units as fit the budget, by SIEVE. Null where not even a few do.
std::unique_ptr<Cache> make_sieve_cache(const UnitLayout& layout, std::uint64_t budget_bytes);

}  // namespace graphbox
