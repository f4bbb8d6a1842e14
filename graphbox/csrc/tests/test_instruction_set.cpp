#include "portability/instruction_set.h"

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "rows/elementwise_rows.h"
#include "rows/residual_rows.h"
#include "rows/rotated_rows.h"
#include "tests/check.h"

namespace graphbox {
namespace {

constexpr std::int64_t kRows = 40;

// Leaves the best set behind, whatever a test chose.
struct BestSetAfterwards {
  ~BestSetAfterwards() { use_instruction_set(instruction_sets().back()); }
};

// A table of each encoding, of the same random bytes.
class Tables {
 public:
  explicit Tables(std::size_t dim)
      : bytes_(static_cast<std::size_t>(kRows) * (4 * dim + 4)), codebooks_(3 * kCodebookRows * dim) {
    std::uint32_t state = static_cast<std::uint32_t>(dim);
    const auto next = [&state] { return (state = state * 1664525U + 1013904223U) >> 8; };
    for (std::size_t i = 0; i < bytes_.size(); ++i) {
      bytes_[i] = static_cast<std::uint8_t>(next() & (i % 2 == 1 ? 0xBB : 0xFF));  // finite in every type
    }
    for (float& value : codebooks_) {
      value = static_cast<float>(next()) / 1000.0F - 8000.0F;
    }
    for (std::size_t i = 0; i < dim; ++i) {
      signs_.push_back(next() % 2 == 0 ? 1 : -1);
    }
    const auto* const halves = reinterpret_cast<const std::uint16_t*>(bytes_.data());
    for (const auto encoding : {ElementEncoding::kFloat32, ElementEncoding::kFloat16, ElementEncoding::kInt8}) {
      each_.push_back(std::make_unique<ElementwiseRows>(ElementArrays{encoding, bytes_.data(), halves, kRows, dim}));
    }
    for (const int bits : {2, 3, 4}) {
      packed_.emplace_back(static_cast<std::size_t>(kRows) * rotated_row_bytes(bits, dim));
      for (std::uint8_t& byte : packed_.back()) {
        byte = static_cast<std::uint8_t>(next());
      }
      for (std::size_t row = 0; row < static_cast<std::size_t>(kRows); ++row) {
        std::memcpy(packed_.back().data() + row * rotated_row_bytes(bits, dim), halves + 2 * row, 4);
      }
      const RotatedArrays arrays = {bits, packed_.back().data(), signs_.data(), kRows, dim};
      each_.push_back(std::make_unique<RotatedRows>(arrays));
    }
    each_.push_back(std::make_unique<ResidualRows>(ResidualArrays{bytes_.data(), codebooks_.data(), 3, kRows, dim}));
  }

  const std::vector<std::unique_ptr<const StoredRows>>& each() const { return each_; }

 private:
  std::vector<std::uint8_t> bytes_;
  std::vector<float> codebooks_;
  std::vector<std::int8_t> signs_;
  std::vector<std::vector<std::uint8_t>> packed_;
  std::vector<std::unique_ptr<const StoredRows>> each_;
};

// The results of every kind of lookup, as bits.
std::vector<std::uint32_t> answers(const StoredRows& table) {
  std::vector<std::int64_t> index;
  std::vector<float> weights;
  for (std::int64_t i = 0; i < 45; ++i) {
    index.push_back(i * 11 % kRows);
    weights.push_back(static_cast<float>(i) / 7.0F);
  }
  const std::size_t dim = table.dim();
  std::vector<float> out((2 * index.size() + 30 + 2) * dim);
  float* const defaults = out.data() + index.size() * dim;
  float* const block = defaults + index.size() * dim;
  table.take(index, {out.data(), dim});
  index[3] = -1;
  const std::vector<float> default_row(dim, 0.5F);
  table.take_or_default({index, default_row.data()}, defaults, dim);
  table.decode(7, 30, block, dim);
  const std::vector<std::int64_t> offsets = {0, 20, 45};
  table.sum({index.data(), weights.data(), offsets}, block + 30 * dim);
  std::vector<std::uint32_t> bits(out.size());
  std::memcpy(bits.data(), out.data(), out.size() * sizeof(float));
  return bits;
}

TEST(instruction_set, rows_have_the_same_bits_on_all) {
  const BestSetAfterwards restore;
  for (const std::size_t dim : {1U, 7U, 8U, 20U, 33U, 56U, 63U, 64U, 100U, 128U, 200U, 256U, 300U}) {
    const Tables tables(dim);
    for (const auto& table : tables.each()) {
      use_instruction_set(InstructionSet::kBaseline);
      const std::vector<std::uint32_t> expected = answers(*table);
      for (const InstructionSet set : instruction_sets()) {
        use_instruction_set(set);
        CHECK(answers(*table) == expected);
      }
    }
  }
}

TEST(instruction_set, work_runs_with_the_chosen_one) {
  const BestSetAfterwards restore;
  CHECK(instruction_set() == instruction_sets().back());
  for (const InstructionSet set : instruction_sets()) {
    use_instruction_set(set);
    InstructionSet found{};
    run_with_instruction_set([&]<InstructionSet kSet>(ForSet<kSet>) GRAPHBOX_INLINE_LAMBDA { found = kSet; });
    CHECK(found == set);
    CHECK(name_of(set) != std::string());
  }
}

}  // namespace
}  // namespace graphbox
