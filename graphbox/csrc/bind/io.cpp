// Checksums of what Python writes and reads, and array files written as streams.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bind/nouns.h"
#include "bind/released_gil.h"
#include "io/array_file.h"
#include "io/crc32c.h"
#include "io/exchange.h"

namespace graphbox::bind {
namespace nb = nanobind;

void add_io(nb::module_& module) {
  module.def(
      "crc32c",
      [](const nb::ndarray<const std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>& bytes,
         std::uint32_t before) {
        const ReleasedGil release;
        return crc32c(before, bytes.data(), bytes.nbytes());
      },
      nb::arg("bytes"), nb::arg("before") = 0,
      "CRC-32C (Castagnoli) of uint8[n], going on from that of the bytes before them.");
  module.def("exchange_paths", &exchange_paths, nb::arg("first"), nb::arg("second"),
             nb::call_guard<ReleasedGil>(),
             "Let two files or folders take each other's place in one step; False where the file system cannot.");
  nb::class_<ArrayFileWriter>(module, "ArrayFileWriter", "Writes a .npy file as a stream of rows.")
      .def(nb::init<std::string, std::string, std::vector<std::uint64_t>>(), nb::arg("path"), nb::arg("dtype"),
           nb::arg("row_shape") = std::vector<std::uint64_t>{})
      .def(
          "append",
          [](ArrayFileWriter& self, const nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>& rows) {
            const ReleasedGil release;
            self.append(rows.data(), rows.nbytes());
          },
          nb::arg("rows"), "Add an array of rows, of the writer's type, behind what there is.")
      .def(
          "finish",
          [](ArrayFileWriter& self) {
            ArrayFile file;
            {
              const ReleasedGil release;
              file = self.finish();
            }
            return nb::make_tuple(nb::tuple(nb::cast(file.shape)), file.crc32c);
          },
          "Write the header, have the file on disk, and return its shape and the CRC-32C of its data.");
}

}  // namespace graphbox::bind
