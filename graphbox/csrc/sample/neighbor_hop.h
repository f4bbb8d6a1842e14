// One hop of one relation: from the nodes that the hop before added to sampled edges and the nodes they lead to.
#pragma once

#include <optional>

#include "sample/hop_lists.h"
#include "sample/neighbor.h"
#include "sample/neighbor_nodes.h"

namespace graphbox {

// Appends the edges to `out` and the new nodes to `source`, which can be `target`. `found`: the lists of the nodes to
// expand, where they are known; only the edges in them are read.
void sample_hop(const NeighborRequest& request, int relation, int hop, BatchNodes& source, const BatchNodes& target,
                const std::optional<HopLists>& found, SampledEdges& out);

}  // namespace graphbox
