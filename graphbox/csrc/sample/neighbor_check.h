// Checks that the parts of a request for neighbours fit each other.
#pragma once

#include "sample/neighbor.h"

namespace graphbox {

// Throws where they do not; the values within arrays are checked when they are read.
void check_request(const NeighborRequest& request);

// The part of it that is about what one relation is drawn with: weights, times, values of edges.
void check_tables(const NeighborRequest& request, const Relation& relation);

// Number of seeds of a request: the number of its trees, if it is disjoint.
std::size_t count_seeds(const NeighborRequest& request);

}  // namespace graphbox
