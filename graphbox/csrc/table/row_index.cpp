#include "table/row_index.h"

#include <sys/random.h>

#include <random>
#include <utility>

namespace graphbox {
namespace {

constexpr std::uint64_t kSmallestCapacity = 1024;

void fill_random(std::uint64_t* words, std::size_t count) {
  const auto bytes = static_cast<ssize_t>(count * sizeof(std::uint64_t));
  if (::getrandom(words, static_cast<std::size_t>(bytes), 0) != bytes) {
    std::random_device device;
    for (std::size_t i = 0; i < count; ++i) {
      words[i] = std::uint64_t{device()} << 32 | device();
    }
  }
}

}  // namespace

RowIndex::RowIndex() : buffer_(kSmallestCapacity * sizeof(Entry)), capacity_(kSmallestCapacity) {
  fill_random(secrets_, 4);
  secrets_[1] |= 1;  // a factor of 0 would lose the key
  secrets_[3] |= 1;
  clear();
}

void RowIndex::clear() {
  for (std::uint64_t slot = 0; slot < capacity_; ++slot) {
    entries()[slot] = {0, kNoRow};
  }
}

std::uint64_t RowIndex::capacity_for(std::uint64_t rows) const {
  std::uint64_t capacity = capacity_;
  while (rows > room(capacity)) {
    capacity += capacity / 2;
  }
  return capacity;
}

void RowIndex::reserve(std::uint64_t rows) {
  const std::uint64_t capacity = capacity_for(rows);
  if (capacity == capacity_) {
    return;
  }
  Buffer larger(capacity * sizeof(Entry));  // may throw: nothing has changed yet
  const Buffer old = std::exchange(buffer_, std::move(larger));
  const auto* old_entries = reinterpret_cast<const Entry*>(old.data());
  const std::uint64_t old_capacity = std::exchange(capacity_, capacity);
  clear();
  for (std::uint64_t slot = 0; slot < old_capacity; ++slot) {
    if (old_entries[slot].row != kNoRow) {
      insert(old_entries[slot].fingerprint, old_entries[slot].row);
    }
  }
}

void RowIndex::insert(std::uint32_t fingerprint, std::uint32_t row) {
  std::uint64_t slot = home(fingerprint);
  while (entries()[slot].row != kNoRow) {
    slot = next(slot);
  }
  entries()[slot] = {fingerprint, row};
}

std::uint64_t RowIndex::slot_of(std::uint32_t fingerprint, std::uint32_t row) const {
  std::uint64_t slot = home(fingerprint);
  while (entries()[slot].row != row) {
    slot = next(slot);
  }
  return slot;
}

// Closes the gap by moving later entries up (Knuth, TAOCP volume 3, 6.4, algorithm R), so that no markers pile up.
void RowIndex::erase(std::uint32_t fingerprint, std::uint32_t row) {
  std::uint64_t gap = slot_of(fingerprint, row);
  for (std::uint64_t slot = next(gap); entries()[slot].row != kNoRow; slot = next(slot)) {
    const std::uint64_t wanted = home(entries()[slot].fingerprint);
    // The entry may move to the gap unless its home lies cyclically after the gap.
    const bool home_after_gap = gap <= slot ? (gap < wanted && wanted <= slot) : (gap < wanted || wanted <= slot);
    if (!home_after_gap) {
      entries()[gap] = entries()[slot];
      gap = slot;
    }
  }
  entries()[gap] = {0, kNoRow};
}

void RowIndex::move(std::uint32_t fingerprint, std::uint32_t from_row, std::uint32_t to_row) {
  entries()[slot_of(fingerprint, from_row)].row = to_row;
}

}  // namespace graphbox
