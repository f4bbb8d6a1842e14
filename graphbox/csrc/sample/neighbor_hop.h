// One hop of one relation: from the nodes that the hop before added to sampled edges and the nodes they lead to.
#pragma once

#include "sample/neighbor.h"
#include "sample/neighbor_nodes.h"

namespace graphbox {

// Appends the edges to `out` and the new nodes to `source`, which can be `target`.
void sample_hop(const NeighborRequest& request, int relation, int hop, BatchNodes& source, const BatchNodes& target,
                SampledEdges& out);

}  // namespace graphbox
