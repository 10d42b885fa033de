// Talks to the console that serves this page, and knows whether it answers.

// The token came after the # of the first address. It stays in this tab: a
// cookie would be sent to every port of that machine.
const KEY = "beanpole-token";
const given = location.hash.match(/^#token=(.+)$/);
if (given) {
  sessionStorage.setItem(KEY, given[1]);
  history.replaceState(null, "", "#/");
}

/** An answer that says why there is none. */
export class Refusal extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export const setToken = (token) => sessionStorage.setItem(KEY, token);

async function request(path, options = {}) {
  const headers = { ...options.headers };
  const token = sessionStorage.getItem(KEY);
  if (token) headers.Authorization = `Bearer ${token}`;
  let answer;
  try {
    answer = await fetch(path, { ...options, headers, signal: AbortSignal.timeout(20000) });
  } catch {
    throw new Refusal(0, "The console does not answer.");
  }
  if (!answer.ok) throw new Refusal(answer.status, (await answer.text()).trim());
  return answer.json();
}

/** Asks for facts. Parameters that are empty are left out. */
export function ask(what, parameters = {}) {
  const some = Object.entries(parameters).filter(([, value]) => value !== "" && value != null);
  return request(`/api/${what}?${new URLSearchParams(some)}`);
}

/**
 * Changes something, and resolves to a sentence that says what was done. The body is that
 * of a job, or the ids of jobs; everything else is in the parameters.
 */
export async function change({ body = "", ...parameters }) {
  return (await request(`/api/change?${new URLSearchParams(parameters)}`, { method: "POST", body })).said;
}
