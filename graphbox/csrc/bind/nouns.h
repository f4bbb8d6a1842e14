// One function for each noun, which adds it to the module.
#pragma once

#include <nanobind/nanobind.h>

namespace graphbox::bind {

void add_errors(nanobind::module_& module);
void add_graph(nanobind::module_& module);
void add_io(nanobind::module_& module);
void add_memory(nanobind::module_& module);
void add_overlay(nanobind::module_& module);
void add_random(nanobind::module_& module);
void add_skip_gram(nanobind::module_& module);
void add_neighbor(nanobind::module_& module);
void add_walk(nanobind::module_& module);
void add_walk_step(nanobind::module_& module);
void add_negative(nanobind::module_& module);
void add_store(nanobind::module_& module);
void add_stored_rows(nanobind::module_& module);
void add_table(nanobind::module_& module);
void add_table_records(nanobind::module_& module);
void add_table_tier(nanobind::module_& module);
void add_text(nanobind::module_& module);
void add_text_lines(nanobind::module_& module);
void add_tiered_neighbor(nanobind::module_& module);

}  // namespace graphbox::bind
