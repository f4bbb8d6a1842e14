// Bindings of the results of pulls, and of sums of rows.
#pragma once

#include <nanobind/nanobind.h>

#include "table/table.h"

namespace graphbox::bind {

void add_pulled_rows(nanobind::module_& module);
void add_bags(nanobind::module_& module, nanobind::class_<Table>& table);

}  // namespace graphbox::bind
