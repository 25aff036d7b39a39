"""Scripts by which an open page brings itself up to date when its file is replaced.

A page that was opened without a server (file://) may not read its own file by fetch(), and a reload would lose the
zoom. So the page loads its file once more in a hidden frame, which hands over the newest data and then stops. The
scripts work with and without a server, and do nothing while the page is hidden, or when its file has gone.

The page (`page.py`) has its data in the elements `summary` and `figure`, before the script HAND_OVER, which
stands before all that is large; and a function `show(text)`, which draws new figures, before the script LOOK_AGAIN.
"""

INTERVAL_S = 30  # a learner writes its plot no more often

HAND_OVER = """
const [summary, written] = ["summary", "figure"].map(id => document.getElementById(id));
const inFrame = parent !== window && new URLSearchParams(location.search).has("newest");
if (inFrame) {  // of a page that looks for newer data; pages of file:// have no origin to name
  parent.postMessage([summary.textContent, written.textContent], location.protocol === "file:" ? "*" : location.origin);
  stop();
}
"""

LOOK_AGAIN = f"""
let shown = written.textContent, frame = null;
function look() {{
  if (document.hidden) return;
  if (frame) frame.remove();  // the file had gone
  frame = document.createElement("iframe");
  frame.hidden = true;
  const newest = new URL(location);
  newest.hash = "";
  newest.searchParams.set("newest", Date.now());
  frame.src = newest;
  document.body.append(frame);
}}
addEventListener("message", ({{ source, data }}) => {{
  if (!frame || source !== frame.contentWindow) return;
  frame.remove();
  frame = null;
  if (data[1] === shown) return;
  [summary.textContent, shown] = data;
  show(shown);
}});
if (!inFrame) setInterval(look, {INTERVAL_S} * 1000);
"""
