// Choosing among the edges that are not excluded.
#pragma once

#include <memory>

#include "sample/neighbor_choice.h"

namespace graphbox {

// The strategy that the request asks for of a relation with excluded edges: `plain` for nodes that have none. The
// others draw among their remaining edges, exactly as if they had no more: a uniform draw is one of the rank among
// them; a weighted one that hits an excluded edge is repeated, or without replacement counts excluded edges as taken.
std::unique_ptr<NeighborChooser> make_excluding_chooser(std::unique_ptr<NeighborChooser> plain,
                                                        const NeighborRequest& request, const Relation& relation);

}  // namespace graphbox
