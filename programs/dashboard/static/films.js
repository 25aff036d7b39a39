// Videos of the best and the newest episode of the evaluation actors.

import { find, make, setChildren, setText } from "./elements.js";
import { moment } from "./format.js";

const TITLES = { best: "Best episode", newest: "Newest episode" };

export function showFilms({ shown, films }) {
  find("films").hidden = !films.length;
  const places = films.map(({ place }) => place);
  setChildren(find("film-list"), [shown, places], () => places.map(place => make("figure", {},
    make("video", { controls: true, muted: true, loop: true, preload: "metadata", ariaLabel: TITLES[place] }),
    make("figcaption", {}),
  )));
  films.forEach(({ place, at, caption }, i) => {
    const [video, text] = find("film-list").children[i].children;
    const source = `/api/film?${new URLSearchParams({ run: shown, place, at })}`;
    if (video.dataset.source === source || !video.paused) return;
    video.dataset.source = source;
    load(video, source);
    setText(text, `${TITLES[place]}: ${caption}, ${moment(at)}`);
  });
}

// Whoever watches a film sees it to its end: it is loaded whole, as the file that holds it may be replaced at any time.
async function load(video, source) {
  const response = await fetch(source).catch(() => null);
  const film = response?.ok ? await response.blob().catch(() => null) : null;
  if (video.dataset.source !== source) return;
  if (!film) return delete video.dataset.source;  // so that the next look at the run loads it again
  URL.revokeObjectURL(video.src);
  video.src = URL.createObjectURL(film);
}
