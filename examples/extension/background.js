// Opens the side panel and hands it the text that was selected. The engine runs in the panel, which stays as long as it is open.

chrome.runtime.onInstalled.addListener(() => {
  chrome.contextMenus.create({ id: 'explain', title: 'Explain “%s”', contexts: ['selection'] });
});
chrome.contextMenus.onClicked.addListener(({ selectionText }, { windowId }) => {
  // Before anything is waited for: the panel opens only in answer to a click.
  chrome.sidePanel.open({ windowId });
  chrome.storage.session.set({ selection: { text: selectionText, time: Date.now() } });
});
chrome.sidePanel.setPanelBehavior({ openPanelOnActionClick: true });
