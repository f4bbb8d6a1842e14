// An edge type to sample as Python gives it.
#pragma once

#include <cstdint>

#include "bind/arrays.h"
#include "sample/neighbor.h"

namespace graphbox::bind {

// Keeps the arrays of a relation alive.
struct RelationArrays {
  InputArray<std::int64_t> indptr;
  AnyInputArray indices;
  Relation relation;
};

}  // namespace graphbox::bind
