// Bindings of the memory that the core keeps between calls.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>

#include <utility>

#include "bind/nouns.h"
#include "bind/released_gil.h"
#include "io/block_reader.h"
#include "memory/buffer.h"
#include "memory/probe.h"
#include "sample/node_map.h"

namespace graphbox::bind {
namespace nb = nanobind;

void add_memory(nb::module_& module) {
  module.def(
      "held_bytes",
      [] {
        return BufferPool::shared().held_bytes() + NodeMapPool<DirectNodeMap>::shared().held_bytes() +
               NodeMapPool<HashNodeMap>::shared().held_bytes() + LentReader::held_bytes();
      },
      "Bytes of the buffers that wait to be used again.");
  module.def(
      "release_buffers",
      [] {
        BufferPool::shared().release();
        NodeMapPool<DirectNodeMap>::shared().release();
        NodeMapPool<HashNodeMap>::shared().release();
        LentReader::release();
      },
      "Give the buffers that wait to be used again back to the system.");
  module.def(
      "random_read_seconds",
      [](std::size_t memory_bytes, std::int64_t reads, std::size_t read_bytes) {
        const ReleasedGil release;
        const Seconds seconds = random_read_seconds(memory_bytes, reads, read_bytes);
        return std::pair(seconds.wall, seconds.cpu);
      },
      nb::arg("memory_bytes"), nb::arg("reads"), nb::arg("read_bytes"),
      "Wall and CPU seconds that reads of read_bytes at random places of memory_bytes take one thread.");
  module.def(
      "random_copy_seconds",
      [](std::size_t memory_bytes, std::int64_t copies, std::size_t copy_bytes, std::size_t target_bytes) {
        const ReleasedGil release;
        const Seconds seconds = random_copy_seconds(memory_bytes, copies, copy_bytes, target_bytes);
        return std::pair(seconds.wall, seconds.cpu);
      },
      nb::arg("memory_bytes"), nb::arg("copies"), nb::arg("copy_bytes"), nb::arg("target_bytes"),
      "The same for copies of copy_bytes from random places to memory of target_bytes, in order.");
}

}  // namespace graphbox::bind
