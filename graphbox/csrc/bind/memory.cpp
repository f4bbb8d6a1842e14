// What the core keeps between calls.
#include <nanobind/nanobind.h>

#include "bind/nouns.h"
#include "memory/buffer.h"
#include "sample/node_map.h"

namespace graphbox::bind {
namespace nb = nanobind;

void add_memory(nb::module_& module) {
  module.def(
      "held_bytes",
      [] {
        return BufferPool::shared().held_bytes() + NodeMapPool<DirectNodeMap>::shared().held_bytes() +
               NodeMapPool<HashNodeMap>::shared().held_bytes();
      },
      "Bytes of the buffers that wait to be used again.");
  module.def(
      "release_buffers",
      [] {
        BufferPool::shared().release();
        NodeMapPool<DirectNodeMap>::shared().release();
        NodeMapPool<HashNodeMap>::shared().release();
      },
      "Give the buffers that wait to be used again back to the system.");
}

}  // namespace graphbox::bind
