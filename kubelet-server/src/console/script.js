// Shows the changes of a page as they come. Without it the page is as it was when it was loaded.
'use strict';
(() => {
  const path = document.body.dataset.live;
  const link = document.getElementById('link');
  const log = document.getElementById('log');
  const follow = document.getElementById('follow');
  const most = 5000;
  const again = 2000;
  const say = (text, lost) => {
    if (link.textContent !== text) link.textContent = text;
    link.className = lost ? 'lost' : 'muted';
  };

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
    label.append('Filter pods ');
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
  const connect = () => {
    const source = new EventSource(path);
    const later = () => { source.close(); setTimeout(connect, again); };
    // A new stream brings the log from its beginning.
    source.onopen = () => { if (log) { say('live'); log.textContent = ''; } };
    source.onerror = () => {
      // After an answer that is no stream, the browser does not try again.
      const refused = source.readyState === EventSource.CLOSED;
      say(refused ? 'the agent refuses this page; it tries again' : 'connection lost; the page tries again', true);
      if (refused) later();
    };
    for (const id of ['summary', 'pods', 'plots', 'events', 'state', 'timeline', 'containers']) {
      source.addEventListener(id, event => { say('live'); show(id, event.data); });
    }
    source.addEventListener('line', event => append(event.data));
    source.addEventListener('end', event => {
      say(event.data);
      // An agent that has just started may not know the pod yet. A log that has ended stays as it is.
      if (log) source.close(); else later();
    });
  };
  connect();
})();
