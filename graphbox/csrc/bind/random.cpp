// The random generator for Python: for tests, and for twins of the samplers on other devices.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>

#include <utility>

#include "bind/arrays.h"
#include "bind/nouns.h"
#include "bind/released_gil.h"
#include "random/permutation.h"
#include "random/philox.h"

namespace graphbox::bind {

void add_random(nb::module_& module) {
  module.def(
      "philox",
      [](InputArray<std::uint32_t, 2> counters, std::uint64_t key) {
        const std::size_t blocks = counters.shape(0);
        if (counters.shape(1) != 4) {
          throw Error(ErrorKind::kUsage, "counters must have 4 columns");
        }
        PooledArray<std::uint32_t> words(static_cast<std::int64_t>(blocks * 4));
        for (std::size_t i = 0; i < blocks; ++i) {
          const PhiloxBlock block =
              philox4x32_10({counters(i, 0), counters(i, 1), counters(i, 2), counters(i, 3)},
                            {static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32)});
          for (std::size_t word = 0; word < 4; ++word) {
            words[static_cast<std::int64_t>(i * 4 + word)] = block[word];
          }
        }
        const std::size_t shape[2] = {blocks, 4};
        return to_numpy<std::uint32_t, 2>(std::move(words), shape);
      },
      nb::arg("counters").noconvert(), nb::arg("key"),
      "Philox4x32-10 blocks: uint32[n, 4] counters to uint32[n, 4] words.");
  module.def(
      "philox_key",
      [](std::uint32_t stream, std::uint64_t seed, std::uint32_t epoch, std::uint64_t batch) {
        const PhiloxKey key = derive_key(static_cast<Stream>(stream), seed, epoch, batch);
        return std::uint64_t{key.high} << 32 | key.low;
      },
      nb::arg("stream"), nb::arg("seed"), nb::arg("epoch"), nb::arg("batch"),
      "The 64-bit Philox key of (stream, seed, epoch, batch).");
  module.def(
      "permutation",
      [](std::int64_t size, std::uint64_t seed, std::uint32_t epoch) {
        if (size < 0) {
          throw Error(ErrorKind::kUsage, "size must not be negative, received " + std::to_string(size));
        }
        PooledArray<std::int64_t> order(size);
        {
          const ReleasedGil release;
          permutation(derive_key(Stream::kPermutation, seed, epoch, 0), order.data(), size);
        }
        return to_numpy(std::move(order));
      },
      nb::arg("size"), nb::arg("seed"), nb::arg("epoch"), "A random order of 0 ... size - 1 as int64[size].");
}

}  // namespace graphbox::bind
