// The Python module: a list of its nouns.
#include <nanobind/nanobind.h>

NB_MODULE(_core, module) {
  module.doc() = "Native core of graphbox: samplers, walks, embedding tables.";
}
