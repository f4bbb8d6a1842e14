import frame from "./en/frame.json";
import explore from "./en/explore.json";
import graphs from "./en/graphs.json";
import home from "./en/home.json";
import models from "./en/models.json";
import runs from "./en/runs.json";
import targets from "./en/targets.json";

export const english = { explore, frame, graphs, home, models, runs, targets };
