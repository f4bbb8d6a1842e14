// Checksums of what Python writes and reads.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include "bind/nouns.h"
#include "io/crc32c.h"

namespace graphbox::bind {
namespace nb = nanobind;

void add_io(nb::module_& module) {
  module.def(
      "crc32c",
      [](const nb::ndarray<const std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>& bytes,
         std::uint32_t before) {
        const nb::gil_scoped_release release;
        return crc32c(before, bytes.data(), bytes.nbytes());
      },
      nb::arg("bytes"), nb::arg("before") = 0,
      "CRC-32C (Castagnoli) of uint8[n], going on from that of the bytes before them.");
}

}  // namespace graphbox::bind
