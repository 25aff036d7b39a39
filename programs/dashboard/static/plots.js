// Draws with plotly, in the page's colours.

const colour = name => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
export const line = index => colour(`line-${1 + index % 8}`);
export const reference = () => colour("reference");
export const soft = () => colour("soft");

export function faint(rgb, share = 0.18) {
  const parts = [1, 3, 5].map(start => parseInt(rgb.slice(start, start + 2), 16));
  return `rgba(${parts.join(",")},${share})`;
}

// Returns plotly's mode for a curve: a line through a single point would not be seen.
export function mode(values) {
  return values.filter(value => value !== null).length > 1 ? "lines" : "markers";
}

function axis(own) {
  const title = own.title ? { title: { text: own.title, standoff: 6, font: { size: 12 } } } : {};
  return {
    gridcolor: colour("grid"), linecolor: colour("soft"), zerolinecolor: colour("grid"), tickfont: { color: colour("soft") },
    automargin: true, ...own, ...title,
  };
}

// Draws traces in the element of this id; `text` describes the plot to who cannot see it.
export function draw(id, traces, { xaxis = {}, yaxis = {}, ...layout }, text) {
  const place = document.getElementById(id);
  place.setAttribute("role", "img");
  place.setAttribute("aria-label", text);
  const style = {
    paper_bgcolor: colour("paper"), plot_bgcolor: colour("paper"), uirevision: "kept", hovermode: "x",
    font: { color: colour("ink"), size: 12, family: getComputedStyle(document.body).fontFamily },
    margin: { l: 10, r: 24, t: 8, b: 10 }, legend: { orientation: "h", traceorder: "normal", x: 0, y: 1.02, yanchor: "bottom", maxheight: 400 },
    hoverlabel: { bgcolor: colour("paper"), bordercolor: colour("soft"), font: { color: colour("ink") } },
    showlegend: traces.filter(trace => trace.showlegend !== false).length > 1,
  };
  const config = { responsive: true, displayModeBar: false };
  return window.Plotly.react(place, traces, { ...style, ...layout, xaxis: axis(xaxis), yaxis: axis(yaxis) }, config);
}
