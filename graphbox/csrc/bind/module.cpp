// The Python module: a list of its nouns.
#include <nanobind/nanobind.h>

#include "bind/nouns.h"

NB_MODULE(_core, module) {
  module.doc() = "Native core of graphbox: neighbour sampling, walks, embedding tables.";
  // Objects that other extensions still hold when the interpreter ends are no leak worth a warning to users.
  nanobind::set_leak_warnings(false);
  graphbox::bind::add_errors(module);
  graphbox::bind::add_io(module);
  graphbox::bind::add_graph(module);
  graphbox::bind::add_memory(module);
  graphbox::bind::add_random(module);
  graphbox::bind::add_overlay(module);
  graphbox::bind::add_neighbor(module);
  graphbox::bind::add_walk(module);
  graphbox::bind::add_walk_step(module);
  graphbox::bind::add_negative(module);
  graphbox::bind::add_store(module);
  graphbox::bind::add_stored_rows(module);
  graphbox::bind::add_table(module);
  graphbox::bind::add_table_records(module);
  graphbox::bind::add_table_tier(module);
  graphbox::bind::add_skip_gram(module);
  graphbox::bind::add_text(module);
  graphbox::bind::add_text_lines(module);
  graphbox::bind::add_tiered_neighbor(module);
}
