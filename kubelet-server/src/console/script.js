// Shows the changes of a page as they come. Without it the page is as it was when it was loaded.
'use strict';
(() => {
  const path = document.body.dataset.live;
  const link = document.getElementById('link');
  const log = document.getElementById('log');
  const follow = document.getElementById('follow');
  const most = 5000;
  const say = text => { if (link.textContent !== text) link.textContent = text; };

  // The filter is outside of the part that changes.
  const pods = document.getElementById('pods');
  let filter = null;
  const apply = () => {
    if (!filter) return;
    const words = filter.value.trim().toLowerCase();
    for (const row of pods.querySelectorAll('tbody tr')) {
      row.hidden = words !== '' && !row.textContent.toLowerCase().includes(words);
    }
  };
  if (pods) {
    const label = document.createElement('label');
    label.className = 'filter';
    label.append('Filter ');
    filter = document.createElement('input');
    filter.type = 'search';
    // With the browser's modifier keys: a single key would get in the way of speech input (WCAG 2.1.4).
    filter.accessKey = 'f';
    filter.addEventListener('input', apply);
    label.append(filter);
    pods.before(label);
  }

  const show = (id, html) => {
    const part = document.getElementById(id);
    if (!part) return;
    const focused = document.activeElement;
    const back = part.contains(focused) ? focused.id : '';
    const scrolled = part.querySelector('.scroll');
    const left = scrolled ? scrolled.scrollLeft : 0;
    const onScroll = scrolled !== null && scrolled === focused;
    part.innerHTML = html; // escaped by the server; the policy allows no script in it
    const now = part.querySelector('.scroll');
    if (now) now.scrollLeft = left;
    if (onScroll && now) now.focus({preventScroll: true});
    if (back) document.getElementById(back)?.focus({preventScroll: true});
    if (id === 'pods') apply();
  };

  const append = text => {
    log.append(text + '\n');
    while (log.childNodes.length > most) log.firstChild.remove();
    if (follow.checked) log.scrollTop = log.scrollHeight;
  };

  if (!path) return;
  if (log && follow) {
    follow.addEventListener('change', () => { if (follow.checked) log.scrollTop = log.scrollHeight; });
  }
  const source = new EventSource(path);
  source.onopen = () => { say('live'); if (log) log.textContent = ''; };
  source.onerror = () => say('connection lost; the page tries again');
  for (const id of ['summary', 'pods', 'plots', 'events', 'state', 'timeline', 'containers']) {
    source.addEventListener(id, event => show(id, event.data));
  }
  source.addEventListener('line', event => append(event.data));
  source.addEventListener('end', event => { say(event.data); source.close(); });
})();
