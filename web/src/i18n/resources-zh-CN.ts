import frame from "./zh-CN/frame.json";
import explore from "./zh-CN/explore.json";
import graphs from "./zh-CN/graphs.json";
import home from "./zh-CN/home.json";
import models from "./zh-CN/models.json";
import runs from "./zh-CN/runs.json";
import targets from "./zh-CN/targets.json";

export const chinese = { explore, frame, graphs, home, models, runs, targets };
