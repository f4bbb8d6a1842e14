// Checks that the parts of a request for neighbours fit each other.
#pragma once

#include "sample/neighbor.h"

namespace graphbox {

// Throws where they do not; the values within arrays are checked when they are read.
void check_request(const NeighborRequest& request);

}  // namespace graphbox
