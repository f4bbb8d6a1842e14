// LABOR: neighbours chosen so that the nodes of a hop share them.
#pragma once

#include <memory>

#include "sample/neighbor_choice.h"

namespace graphbox {

// LABOR-0 (Balin and Catalyurek, "Layer-Neighbor Sampling: Defusing Neighborhood Explosion in GNNs", NeurIPS 2023) in
// its variant of exact counts, sequential Poisson sampling. Every source node has one random number in a hop, and each
// frontier node takes the wanted number of neighbours with the smallest of them: with weights, of exponential numbers
// divided by the weight. Which neighbours one node takes is distributed as without LABOR (any equally likely, or
// successive sampling by weight); nodes with common neighbours tend to take the same ones, so a batch has fewer nodes.
//
// The counter's position is the source node, its relation the number of the source type, its draw which copy of
// parallel edges in an ascending list. Reads all neighbours of the frontier.
std::unique_ptr<NeighborChooser> make_labor_chooser(const Relation& relation);

}  // namespace graphbox
