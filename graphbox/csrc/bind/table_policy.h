// The policies of tables for Python.
#pragma once

#include <nanobind/nanobind.h>

#include "table/table.h"

namespace graphbox::bind {

void add_policy_classes(nanobind::module_& module);
void add_policy_methods(nanobind::class_<Table>& table);

}  // namespace graphbox::bind
