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
    if (video.getAttribute("src") === source || !video.paused) return;  // whoever watches one sees it to its end
    video.src = source;
    setText(text, `${TITLES[place]}: ${caption}, ${moment(at)}`);
  });
}
