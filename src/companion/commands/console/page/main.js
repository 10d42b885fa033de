// Which parts a document has: those of a job, of a tube, or of servers.

import "./changes.js";
import { begin, place } from "./console.js";
import { curves } from "./curves.js";
import { job } from "./job.js";
import { jobs, tube } from "./tube.js";
import { clients, servers, top, tubes } from "./tubes.js";

if (place.job) begin({ top, job });
else if (place.tube) begin({ top, tube, curves, jobs });
else if (place.server) begin({ top, servers, curves, clients, tubes });
else begin({ top, servers, tubes });
